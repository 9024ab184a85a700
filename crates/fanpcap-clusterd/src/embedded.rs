//! The embedded engine: the control protocol over UDP, without another server.
