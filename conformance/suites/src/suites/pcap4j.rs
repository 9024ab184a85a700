//! pcap4j, in Java. We run our own program, because no package of pcap4j contains its tests.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::command::{self, BUILD};
use crate::fetch;
use crate::outcome::Outcome;
use crate::place::Place;
use crate::session::Session;
use crate::suite::{Built, Suite, Traffic, program};
use crate::{tap, wire};

pub(crate) static SUITE: Suite = Suite {
    name: "pcap4j",
    what: "Java's pcap4j, a program of ours",
    traffic: Traffic::Constant,
    prepare,
    run,
};

fn prepare(place: &Place) -> Result<Built> {
    for needed in ["mvn", "javac", "java"] {
        fetch::installed(needed)?;
    }
    let log = place.log("build.pcap4j")?;
    let pom = program("pom.xml");
    let text = fs::read_to_string(&pom).context("the pom")?;
    let version = text
        .split("<version>")
        .nth(2)
        .and_then(|rest| rest.split('<').next());
    let version = version.context("a version in the pom")?;
    let dir = place.made(&format!("pcap4j-{version}"), |dir| {
        let mut maven = command::bounded("mvn", BUILD);
        maven
            .args(["-q", "-B", "dependency:copy-dependencies", "-f"])
            .arg(&pom)
            .arg(format!("-DoutputDirectory={}", dir.join("lib").display()));
        command::step(&mut maven, &log).map(drop)
    })?;
    // Compile again, because our program may have changed.
    let mut javac = command::bounded("javac", BUILD);
    javac
        .args(["-cp", "lib/*", "-d", "classes"])
        .arg(program("Pcap4jLive.java"))
        .current_dir(&dir);
    command::step(&mut javac, &log)?;
    let java = fetch::first_line("javac", &["-version"])?;
    let version = format!("{version}, {java}");
    Ok(Built { dir, version })
}

fn run(built: &Built, session: &Session) -> Result<Outcome> {
    let mut java = session.program("java", LIMIT);
    java.args(["-cp", "lib/*:classes", "Pcap4jLive", wire::DEVICE])
        .current_dir(&built.dir);
    tap::parse(&session.run("", &mut java)?.said)
}

const LIMIT: Duration = Duration::from_secs(120);
