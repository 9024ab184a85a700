//! A scene for the picture of `fanpcap top`: three tcpdump and two p0f processes share a device's
//! traffic.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::{Scratch, Veth, library, member, netns};

/// A terminal wide enough for all columns.
const SIZE: [&str; 4] = ["-x", "132", "-y", "14"];

/// The output of `fanpcap top` on the scene, with escape sequences for colours.
pub(super) fn look() -> Result<String> {
    netns::within_new(|| {
        Veth::new("gen0", "eth0", 1)?;
        let scratch = Scratch::new()?;
        let (pcap, log) = (scratch.file("%i.pcap"), scratch.file("%i.log"));
        let (pcap, log) = (pcap.display().to_string(), log.display().to_string());
        let tcpdump = [
            "tcpdump", "-n", "-i", "eth0", "-Z", "root", "-s", "96", "-w", &pcap,
        ];
        let p0f = ["p0f", "-i", "eth0", "-o", &log];
        let run = ["run", "-q", "--group"];
        let first = [&run[..], &["5", "-n", "3", "--"], &tcpdump].concat();
        let second = [&run[..], &["6", "-n", "2", "--fanout", "flow", "--"], &p0f].concat();
        let _first = Running::start(&first)?;
        member::wait_for_members(5, 3)?;
        let _second = Running::start(&second)?;
        member::wait_for_members(6, 2)?;
        let frames = ["--flows", "4000", "--tcp", "--udp", "--imix"];
        let generate = [
            &["gen", "-i", "gen0", "--rate", "40kpps", "-t", "30"],
            &frames[..],
        ];
        let _traffic = Running::start(&generate.concat())?;
        shown(&scratch)
    })
}

/// The screen after some seconds: its rates are then of whole intervals.
fn shown(scratch: &Scratch) -> Result<String> {
    let socket = scratch.file("tmux").display().to_string();
    let top = format!("hostname sensor; exec {} top eth0", command()?.display());
    let show = ["new-session", "-d"];
    let inside = ["unshare", "--uts", "sh", "-c", &top];
    tmux(&socket, &[&show[..], &SIZE, &inside].concat())?;
    thread::sleep(Duration::from_secs(8));
    let screen = tmux(&socket, &["capture-pane", "-e", "-p"]);
    tmux(&socket, &["kill-server"])?;
    screen
}

fn tmux(socket: &str, words: &[&str]) -> Result<String> {
    let mut tmux = Command::new("tmux");
    // Without a UTF-8 locale, top would show no arrows.
    tmux.env("TERM", "xterm-256color")
        .args(["-u", "-S", socket]);
    let done = tmux.args(words).output().context("starting tmux")?;
    ensure!(done.status.success(), "tmux {words:?}: {done:?}");
    Ok(String::from_utf8(done.stdout)?)
}

/// Path of the staged command.
fn command() -> Result<PathBuf> {
    let path = library::library_dir()?.join("../bin/fanpcap");
    path.canonicalize().context("the command: run make first")
}

/// A `fanpcap` process; drop ends it.
struct Running(Child);

impl Running {
    fn start(words: &[&str]) -> Result<Self> {
        let mut command = Command::new(command()?);
        command
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        Ok(Self(command.spawn().context("starting fanpcap")?))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let pid = self.0.id().to_string();
        let _ = Command::new("kill").arg(pid).status();
        let _ = self.0.wait();
    }
}
