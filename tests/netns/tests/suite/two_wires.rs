//! Two wires in a new namespace, for handles on several devices: `f1^f2`.

use std::path::Path;

use anyhow::Result;
use fanpcap_testkit::member::Ended;
use fanpcap_testkit::{Injector, Program, Scratch, Veth, library, netns};

/// Two wires. Programs capture at their far ends, `f1` and `f2`.
pub(crate) struct Wires {
    pub(crate) scratch: Scratch,
    near: [Injector; 2],
}

pub(crate) fn on_two_wires(test: impl FnOnce(&Wires) -> Result<()> + Send) -> Result<()> {
    netns::within_new(|| {
        Veth::new("n1", "f1", 1)?;
        Veth::new("n2", "f2", 1)?;
        test(&Wires {
            scratch: Scratch::new()?,
            near: [Injector::open("n1")?, Injector::open("n2")?],
        })
    })
}

impl Wires {
    /// A program of this crate's `c` directory, which prints "ready" once it captures.
    pub(crate) fn program(&self, name: &str, arguments: &[&str]) -> Result<Program> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("c");
        let program = self.scratch.file(name);
        if !program.exists() {
            library::compile_c(&directory.join(name).with_extension("c"), &program)?;
        }
        Ok(Program::new(program, "ready")?.args(arguments))
    }

    /// Runs a program of this crate's `c` directory to its end. With PCAP_DRIVER, our reader also
    /// reads handles on a single device.
    pub(crate) fn run(&self, name: &str, arguments: &[&str]) -> Result<Ended> {
        let program = self.program(name, arguments)?;
        program.set("PCAP_DRIVER", "tpacket").run(&self.scratch)
    }

    /// Sends frame `number` on wire 0 or 1. The source address contains both numbers, and the
    /// frame's number also follows the header.
    pub(crate) fn send(&self, wire: u8, number: u8) -> Result<()> {
        let mut frame = vec![2, 0, 0, 0, 0, 1, wire, 0, 0, 0, 0, number, 8, 0, number];
        frame.resize(60, 0);
        Ok(self.near[usize::from(wire)].send(&frame)?)
    }
}
