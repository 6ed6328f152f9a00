//! Admission webhooks: certificates, TLS and handlers. Thin shells around `dapple-api` and `dapple-edit`.
