//! The verifier's reason for refusing a BPF program.

use std::fmt;
use std::io;

/// Why the kernel does not load a BPF program.
#[derive(Debug)]
pub struct Refused {
    /// `EPERM` without [`fanpcap_bpf::ProgramKind::capabilities`]; `EINVAL` or `EACCES` when the
    /// verifier rejects the code.
    pub error: io::Error,
    /// The verifier's log.
    pub log: String,
}

/// Shows one line with the verifier's reason; `{:#}` shows the whole log.
impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the kernel refuses the BPF program: {}", self.error)?;
        if f.alternate() {
            let log = self.log.trim_end();
            return write!(f, "\n{log}");
        }
        reason(&self.log).map_or(Ok(()), |reason| write!(f, ": {reason}"))
    }
}

/// Returns the verifier's reason: the last line of its log that is not statistics
/// (kernel/bpf/verifier.c, `print_verification_stats`).
fn reason(log: &str) -> Option<&str> {
    let mut lines = log.lines().rev().map(str::trim);
    let statistics = ["processed ", "verification time ", "stack depth "];
    let is_reason = |line: &&str| {
        let is_statistics = statistics.iter().any(|it| line.starts_with(it));
        !line.is_empty() && !is_statistics
    };
    lines.find(is_reason)
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_is_what_the_log_says_last_of_the_program() {
        let log = "0: (95) exit\nR0 !read_ok\nprocessed 1 insns (limit 1000000)\n\n";
        assert_eq!(reason(log), Some("R0 !read_ok"));
        assert_eq!(reason("processed 1 insns (limit 1000000)\n"), None);
        assert_eq!(reason(""), None);
    }
}
