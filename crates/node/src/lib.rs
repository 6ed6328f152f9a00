//! The node agent: the prober of markers. The gateway to several control planes is planned.

pub mod marker;
