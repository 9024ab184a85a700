//! scapy, in Python, on libpcap. We run our own program, because no package of scapy contains its
//! tests.

use std::time::Duration;

use anyhow::Result;

use crate::command::{self, BUILD};
use crate::fetch;
use crate::outcome::Outcome;
use crate::place::Place;
use crate::session::Session;
use crate::suite::{Built, Suite, Traffic, program};
use crate::{tap, wire};

const VERSION: &str = "2.8.0";

pub(crate) static SUITE: Suite = Suite {
    name: "scapy",
    what: "Python's scapy on libpcap, a program of ours",
    traffic: Traffic::Constant,
    prepare,
    run,
};

fn prepare(place: &Place) -> Result<Built> {
    fetch::installed("python3")?;
    let log = place.log("build.scapy")?;
    let dir = place.made(&format!("scapy-{VERSION}"), |dir| {
        let mut venv = command::bounded("python3", BUILD);
        command::step(venv.args(["-m", "venv"]).arg(dir.join("venv")), &log)?;
        let mut pip = command::bounded(dir.join("venv/bin/pip"), BUILD);
        let package = format!("scapy=={VERSION}");
        command::step(pip.args(["install", &package]), &log).map(drop)
    })?;
    let python = fetch::first_line("python3", &["--version"])?;
    let version = format!("{VERSION}, {python}");
    Ok(Built { dir, version })
}

fn run(built: &Built, session: &Session) -> Result<Outcome> {
    let mut python = session.program(built.dir.join("venv/bin/python"), LIMIT);
    python
        .arg(program("scapy_live.py"))
        .arg(wire::DEVICE)
        // With the user's HOME, scapy would keep files in the user's home directory.
        .env("HOME", &session.scratch)
        .current_dir(&session.scratch);
    tap::parse(&session.run("", &mut python)?.said)
}

const LIMIT: Duration = Duration::from_secs(120);
