//! The scheduler extender: a thin shell around `dapple-plan`.
