//! Which copy a process belongs to.

use std::fs;

/// The copy that a process belongs to: it is the copy's, of its process group, or a descendant.
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
        let (parent, group) = parent_and_group(pid)?;
        if let Some(copy) = of(group) {
            return Some(copy);
        }
        pid = parent;
    }
    None
}

const DEPTH_MAX: usize = 32;

/// Fields 4 and 5 of `/proc/PID/stat`; the name before them may have anything in it (proc(5)).
fn parent_and_group(pid: u32) -> Option<(u32, u32)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(1);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}

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
