//! Records the README's moving picture: in terminals on generated traffic, `fanpcap run` and
//! `fanpcap top` run, and a copy is killed. The picture's captions are checked in the captures.

mod terminal;
mod film;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use fanpcap_linux::process;
use fanpcap_testkit::hosts::{Hosts, PEER_DEVICE};
use fanpcap_testkit::{Capture, FlowKey, Scratch, library, member};

use film::Film;
use terminal::Terminal;

/// The picture, relative to this package.
const PICTURE: &str = "../../docs/pictures/run.svg";
const DEVICE: &str = "eth0";
const RUN: &str = "fanpcap run -n 4 --merge all.pcapng -- tcpdump -n -U -i eth0 -w %i.pcap";
const COPIES: usize = 4;
/// The copy that is killed.
const KILLED: usize = 1;
const FLOWS: usize = 4096;
/// Packets a second. In half a second each flow has a packet.
const RATE: usize = 10_000;
/// The time around the kill in which packets do not count: the other members need up to 0.1 s to
/// take the flows over, and each flow needs its next packet.
const SETTLING: Duration = Duration::from_secs(1);

/// Records the picture into docs/pictures/run.svg. The thread that records is one of its own,
/// because it moves between network namespaces.
pub(crate) fn run() -> Result<()> {
    ensure!(
        process::effective_user() == 0,
        "the picture is recorded in network namespaces: run this as root"
    );
    let film = thread::scope(|scope| scope.spawn(record).join()).expect("no panic")?;
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PICTURE);
    fs::write(&path, film.svg())?;
    println!("{}", path.display());
    Ok(())
}

fn record() -> Result<Film> {
    let hosts = Hosts::on(DEVICE)?;
    let scratch = Scratch::new()?;
    let directory = scratch.file("");
    let path = command_path()?;
    let began = Instant::now();
    let open = |title, rows| Terminal::open(title, rows, &directory, &path, began);
    let mut copies = open("terminal 1", 12)?;
    let mut top = open("terminal 2", 11)?;
    let mut shell = open("terminal 3", 2)?;
    let mut captions = vec![(
        Duration::ZERO,
        "Four copies of an unmodified tcpdump on one device".to_owned(),
    )];
    let mut say = |text: String| captions.push((began.elapsed(), text));

    copies.enter(RUN)?;
    copies.wait_for("eth0: 4 copies")?;
    let mut traffic = Traffic::start(&hosts, &path)?;
    top.enter("fanpcap top")?;
    top.wait_for("tcpdump")?;
    say(format!(
        "The copies share {FLOWS} flows; each flow is at one of them"
    ));
    thread::sleep(Duration::from_secs(4));

    let victim = pid_of(&format!("{KILLED}.pcap"), &directory)?;
    shell.enter(&format!("kill -9 {victim}"))?;
    let killed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    say(
        "One is killed: the others get its flows, and read the packets left in its ring".to_owned(),
    );
    thread::sleep(Duration::from_secs(5));

    top.press(" ")?; // It pauses: after the traffic the shares are 0.
    let sent = traffic.end()?;
    // The copies get the last packets within a ring's time-out.
    thread::sleep(Duration::from_millis(1500));
    copies.press("\u{3}")?;
    copies.wait_for("all.pcapng:")?;
    thread::sleep(Duration::from_millis(300));
    let proof = Proof::read(&directory, killed)?;
    proof.check(sent)?;
    say(proof.caption(sent));
    Ok(Film::new(
        [copies.close()?, top.close()?, shell.close()?],
        captions,
    ))
}

/// `PATH` with the directory of the staged commands in front.
fn command_path() -> Result<String> {
    let commands = library::library_dir()?.join("../bin").canonicalize()?;
    ensure!(
        commands.join("fanpcap").exists(),
        "no command in {}: run 'make' first",
        commands.display()
    );
    let rest = env::var("PATH").context("PATH")?;
    Ok(format!("{}:{rest}", commands.display()))
}

/// The process that runs in `directory` and whose last argument is `argument`.
fn pid_of(argument: &str, directory: &Path) -> Result<u32> {
    let directory = directory.canonicalize()?;
    for entry in fs::read_dir("/proc")? {
        let process = entry?.path();
        let name = process.file_name().and_then(|name| name.to_str());
        let Some(pid) = name.and_then(|name| name.parse().ok()) else {
            continue;
        };
        let line = fs::read_to_string(process.join("cmdline")).unwrap_or_default();
        let last = line.trim_end_matches('\0').rsplit('\0').next();
        let runs_there = fs::read_link(process.join("cwd")).is_ok_and(|at| at == directory);
        if last == Some(argument) && runs_there {
            return Ok(pid);
        }
    }
    anyhow::bail!("no process writes {argument}")
}

/// `fanpcap gen` at the other end of the wire.
struct Traffic {
    process: Child,
}

impl Traffic {
    fn start(hosts: &Hosts, path: &str) -> Result<Self> {
        let (rate, flows) = (RATE.to_string(), FLOWS.to_string());
        let mut command = Command::new("fanpcap");
        command
            .args(["gen", "-i", PEER_DEVICE, "--rate", &rate, "--flows", &flows])
            .args(["--tcp", "--udp", "--len", "200", "--portable", "--json"])
            .env("PATH", path)
            .stdout(Stdio::piped());
        let process = hosts.on_peer(|| command.spawn().context("fanpcap gen"))?;
        Ok(Self { process })
    }

    /// Ends the traffic. Returns the number of packets that were sent.
    fn end(&mut self) -> Result<usize> {
        member::signal(self.process.id(), "INT")?;
        let output = self.process.stdout.take().context("its output")?;
        let sent: serde_json::Value = serde_json::from_reader(output)?;
        self.process.wait()?;
        let frames = sent["sent"].as_u64().context("the number of frames")?;
        Ok(usize::try_from(frames)?)
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        // It has ended, except after an error.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What the copies' captures show.
struct Proof {
    packets: usize,
    /// The copy of each flow before the kill, and after it.
    owners: [BTreeMap<FlowKey, usize>; 2],
}

impl Proof {
    fn read(directory: &Path, killed: Duration) -> Result<Self> {
        let mut proof = Self {
            packets: 0,
            owners: Default::default(),
        };
        for copy in 0..COPIES {
            let file: PathBuf = directory.join(format!("{copy}.pcap"));
            let capture = Capture::read_so_far(&file);
            proof.packets += capture.packets.len();
            for packet in &capture.packets {
                let Some(flow) = packet.flow else { continue };
                let after = packet.stamp > killed + SETTLING;
                if after || packet.stamp + SETTLING < killed {
                    let owner = proof.owners[usize::from(after)].insert(flow, copy);
                    ensure!(owner.is_none_or(|it| it == copy), "a flow at two copies");
                }
            }
        }
        Ok(proof)
    }

    /// Checks that every flow was seen before and after the kill, that only flows of the killed
    /// copy have moved, and that at most the packet that the killed copy was processing is missing.
    fn check(&self, sent: usize) -> Result<()> {
        let [before, after] = &self.owners;
        ensure!(
            before.len() == FLOWS,
            "{} flows before the kill",
            before.len()
        );
        ensure!(after.len() == FLOWS, "{} flows after the kill", after.len());
        let moved = before.iter().filter(|(flow, copy)| after[flow] != **copy);
        let others = moved.filter(|(_, copy)| **copy != KILLED).count();
        ensure!(others == 0, "{others} flows of living copies moved");
        ensure!(
            sent - self.packets <= 1,
            "{} of {sent} packets",
            self.packets
        );
        Ok(())
    }

    fn caption(&self, sent: usize) -> String {
        let moved = self.owners[0].values().filter(|copy| **copy == KILLED);
        format!(
            "Moved: the {} flows of the killed copy, and no other. Captured: {} of {sent} packets",
            moved.count(),
            self.packets
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture_in_the_readme_is_a_record_of_this_command() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let picture = fs::read_to_string(root.join(PICTURE)).unwrap();
        assert!(
            picture.contains(&format!(">{}</text>", format_args!("# {RUN}"))),
            "{RUN}"
        );
        assert!(picture.len() < 500_000, "{} bytes", picture.len());
        let readme = fs::read_to_string(root.join("../../README.md")).unwrap();
        assert!(readme.contains("(docs/pictures/run.svg)"));
    }
}
