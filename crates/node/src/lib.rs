//! The node agent: the gateway to several control planes, and the prober.
