//! Finds the copy that a process belongs to.

use fanpcap_linux::process::stat::Stat;

/// The copy that `pid` belongs to: `pid` is the copy's process, is in its process group, or
/// descends from it.
pub(crate) fn copy_of(pid: u32, copies: &[(u32, usize)]) -> Option<usize> {
    let of = |pid: u32| {
        copies
            .iter()
            .find(|(of, _)| *of == pid)
            .map(|(_, copy)| *copy)
    };
    let mut pid = pid;
    for _ in 0..DEPTH_MAX {
        if let Some(copy) = of(pid) {
            return Some(copy);
        }
        let process = Stat::of(pid)?;
        if let Some(copy) = of(process.group) {
            return Some(copy);
        }
        pid = process.parent;
    }
    None
}

const DEPTH_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_belong_to_the_copy_that_started_them() {
        let own = std::process::id();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        assert_eq!(copy_of(child.id(), &[(own, 5)]), Some(5));
        assert_eq!(copy_of(own, &[(child.id(), 5)]), None);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
