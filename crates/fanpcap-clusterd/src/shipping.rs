//! Ships a node's records to the analyzers.
