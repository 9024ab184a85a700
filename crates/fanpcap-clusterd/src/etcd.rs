//! The engine on etcd.
