//! Proves which libpcap a suite used: checks which libraries its processes loaded, and which
//! library read their handles.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::command::{self, BUILD};
use crate::place::Place;
use crate::session::Session;
use crate::suite::program;
use crate::variant::Variant;
use crate::wire;

/// Number of processes that loaded a libpcap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Loads {
    /// Processes that loaded our library. Such a process may also have loaded the system's library,
    /// through ours.
    ours: usize,
    /// Processes that loaded only another libpcap.
    others: usize,
}

/// Checks that every process of the session that loaded a libpcap loaded the libpcap of the
/// variant.
pub(crate) fn loads(session: &Session) -> Result<()> {
    let mut loads = Loads::default();
    for entry in fs::read_dir(&session.loads)? {
        let path = entry?.path();
        let text = fs::read(&path).with_context(|| path.display().to_string())?;
        loads.add(&String::from_utf8_lossy(&text), &session.staged);
    }
    let Loads { ours, others } = loads;
    if session.variant == Variant::System {
        ensure!(others > 0, "no process loaded a libpcap");
        ensure!(ours == 0, "{ours} processes loaded our libpcap");
    } else {
        ensure!(ours > 0, "no process loaded our libpcap");
        ensure!(
            others == 0,
            "{others} processes loaded another libpcap than ours"
        );
    }
    Ok(())
}

/// Checks that the variant's reader reads a handle that is opened in this session, on its wire. If
/// the variant sets a driver, the reader must be a function of our library. If not, it must be a
/// function of the system's library. On the XDP engine, the device must have an XDP program. On the
/// other variants, it must have none.
pub(crate) fn reader(place: &Place, session: &Session) -> Result<()> {
    let built = place.dir("reader")?.join("reader");
    let mut cc = command::bounded("cc", BUILD);
    cc.args(["-Wall", "-D_GNU_SOURCE", "-o"])
        .arg(&built)
        .arg(program("reader.c"))
        .arg("-ldl");
    command::step(&mut cc, &place.log("build.reader")?)?;
    let mut reader = session.program(&built, LIMIT);
    // This process does not belong to the suite, so [`loads`] must not count the libraries that it
    // loads.
    reader.arg(wire::DEVICE).env_remove("LD_DEBUG");
    let said = command::step(&mut reader, &session.log("reader"))?;
    let last = said.lines().last().unwrap_or_default();
    let (hook, file) = last.split_once(' ').unwrap_or_default();
    let ours = Path::new(file).starts_with(&session.staged);
    let wanted = session.variant.driver();
    ensure!(
        ours == wanted.is_some() && (hook == "xdp") == (wanted == Some("xdp")),
        "handles are read by {file}, from {hook}"
    );
    Ok(())
}

impl Loads {
    /// Counts the process whose loader has printed `said` (ld.so(8), `LD_DEBUG=libs`).
    fn add(&mut self, said: &str, staged: &Path) {
        let initialised: Vec<&str> = said
            .lines()
            .filter_map(|line| line.split_once("calling init: "))
            .map(|(_, path)| path.trim())
            .filter(|path| is_libpcap(path))
            .collect();
        if initialised
            .iter()
            .any(|path| Path::new(path).starts_with(staged))
        {
            self.ours += 1;
        } else if !initialised.is_empty() {
            self.others += 1;
        }
    }
}

/// Whether the path is a libpcap, including a copy from a package, such as libpcap-1a2b.so.1.9.1.
fn is_libpcap(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or_default();
    name.strip_prefix("libpcap")
        .is_some_and(|rest| rest.starts_with(['.', '-']) && rest.contains(".so"))
}

const LIMIT: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_count_by_the_libpcap_that_they_initialised() {
        let mut loads = Loads::default();
        let staged = Path::new("/stage/lib");
        for said in [
            "  7:\tcalling init: /lib/libc.so.6\n",
            "  8:\tcalling init: /stage/lib/libpcap.so.0.8\n  8:\tcalling init: /usr/lib/libpcap.so.0.8\n",
            "  9:\tcalling init: /usr/lib/libpcap.so.0.8\n",
            " 10:\tcalling init: /venv/libs/libpcap-2b6f73a4.so.1.9.1\n",
            " 11:\tcalling init: /venv/pcapy.cpython-311.so\n",
        ] {
            loads.add(said, staged);
        }
        assert_eq!(loads, Loads { ours: 1, others: 2 });
    }
}
