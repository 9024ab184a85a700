//! From nodes to collectors of others: the wires between, closed to strangers.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::await_for::{LIMIT, await_for};
use fanpcap_testkit::netns;
use serde_json::Value;

use crate::stage::Stage;

const ANALYZER: &str = "192.0.2.254";

/// A program that runs; what it says is in files.
struct Program {
    child: Child,
    out: PathBuf,
    log: PathBuf,
}

impl Program {
    fn start(command: &mut Command, stage: &Stage, name: &str) -> Result<Self> {
        let (out, log) = (
            stage.scratch.file(&format!("{name}.out")),
            stage.scratch.file(&format!("{name}.log")),
        );
        command.stdin(Stdio::null()).stdout(File::create(&out)?);
        let child = command.stderr(File::create(&log)?).spawn();
        let child = child.with_context(|| format!("starting {name}"))?;
        Ok(Self { child, out, log })
    }

    fn analyzer(stage: &Stage, words: &[&str]) -> Result<Self> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fanpcap-cluster"));
        command.args(["analyzer", "--json", "--config"]);
        command.arg(stage.scratch.file("cluster.conf")).args(words);
        Self::start(&mut command, stage, "analyzer")
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let pid = self.child.id().to_string();
        let done = Command::new("kill").args(["-s", signal, &pid]).status()?;
        ensure!(done.success(), "kill -s {signal} {pid}");
        Ok(())
    }

    /// Ends it by a signal. Returns what it said on standard error and on standard output.
    fn stop(mut self, signal: &str) -> Result<(String, String)> {
        self.signal(signal)?;
        await_for("the program's end", LIMIT, || Ok(self.child.try_wait()?))?;
        let text = |path| Ok::<_, anyhow::Error>(fs::read_to_string(path)?);
        Ok((text(&self.log)?, text(&self.out)?))
    }

    /// Waits until it has said `text` on standard error.
    fn await_output(&self, text: &str) -> Result<()> {
        let said = || fs::read_to_string(&self.log).unwrap_or_default();
        let wait = await_for("its words", LIMIT, || {
            Ok(said().contains(text).then_some(()))
        });
        wait.with_context(|| format!("{text:?} in: {}", said()))
    }

    /// Waits until an analyzer has delivered so many packets.
    fn await_delivered(&self, count: u64) -> Result<()> {
        let mut last = Value::Null;
        let wait = await_for("the packets", LIMIT, || {
            let text = fs::read_to_string(&self.out)?;
            if let Some(line) = text.lines().last() {
                last = serde_json::from_str(line).unwrap_or_default();
            }
            Ok((last["delivered"] == count).then_some(()))
        });
        let log = fs::read_to_string(&self.log)?;
        wait.with_context(|| format!("{count} in {last}; {log}"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // A program that has ended is not there any more.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn begin(nodes: usize, more: &str) -> Result<Stage> {
    let mut stage = Stage::bare(nodes)?;
    let key = stage.scratch.write("key", &"k".repeat(32))?;
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    stage.settings(&format!(
        "mode = capture\nheader = 80\nanalyzers = {ANALYZER}:7710\ntransport = tcp\n\
         key_file = {}\n{more}",
        key.display()
    ))?;
    Ok(stage)
}

/// Packets that a cluster exports.
const PACKETS: u64 = 3000;

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_collector_of_others_counts_each_packet_of_the_cluster() {
    if is_missing("nfacctd", "pmacct") {
        return;
    }
    netns::within_new(|| {
        let mut stage = begin(3, "")?;
        let found = stage.scratch.file("found");
        let config = format!(
            "daemonize: false\nnfacctd_ip: 127.0.0.1\nnfacctd_port: 2055\n\
             nfacctd_disable_checks: false\nplugins: print\nprint_refresh_time: 3600\n\
             print_output: json\nprint_output_file: {}\n\
             aggregate: src_host, dst_host, src_port, dst_port, proto\n",
            found.display()
        );
        let config = stage.scratch.write("nfacctd.conf", &config)?;
        let mut nfacctd = Command::new("nfacctd");
        let nfacctd = Program::start(nfacctd.arg("-f").arg(config), &stage, "nfacctd")?;
        export(&mut stage, "ipfix://127.0.0.1:2055")?;
        let (log, out) = nfacctd.stop("INT")?;
        let said = log + &out;
        ensure!(
            !said.contains("expecting flow") && !said.contains("malformed"),
            "{said}"
        );
        let mut packets = 0;
        for line in fs::read_to_string(&found)?.lines() {
            let row: Value = serde_json::from_str(line)?;
            packets += row["packets"].as_u64().context("packets")?;
        }
        ensure!(packets == PACKETS, "{packets} packets; {said}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn a_collector_of_flows_counts_each_packet_of_the_cluster() {
    if is_missing("nfcapd", "nfdump") {
        return;
    }
    netns::within_new(|| {
        let mut stage = begin(3, "")?;
        let flows = stage.scratch.file("flows");
        fs::create_dir(&flows)?;
        let mut nfcapd = Command::new("nfcapd");
        nfcapd.args(["-b", "127.0.0.1", "-p", "2055", "-l"]);
        let nfcapd = Program::start(nfcapd.arg(flows), &stage, "nfcapd")?;
        export(&mut stage, "ipfix-flows://127.0.0.1:2055")?;
        let (log, out) = nfcapd.stop("TERM")?;
        let said = log + &out;
        let lines = said.lines().filter_map(|line| line.split_once("Flows: "));
        // Every five minutes by the clock nfcapd begins another file, and counts anew.
        let (mut flows, mut packets) = (0, 0);
        for (_, counts) in lines {
            ensure!(
                counts.ends_with("Sequence Errors: 0, Bad Packets: 0"),
                "{said}"
            );
            let mut counts = counts.split(", ");
            let mut next = |name| counts.next()?.trim_start_matches(name).parse::<u64>().ok();
            flows += next("").context("flows")?;
            packets += next("Packets: ").context("packets")?;
        }
        ensure!((flows, packets) == (PACKETS, PACKETS), "{said}");
        Ok(())
    })
    .unwrap();
}

/// Whether a collector is not installed, which is said then.
#[allow(clippy::print_stdout, reason = "the tiers read it in a test's output")]
fn is_missing(program: &str, package: &str) -> bool {
    let missing = Command::new(program).arg("-V").output().is_err();
    if missing {
        println!("SKIP: no {program} (package {package})");
    }
    missing
}

/// Has three nodes capture packets and an analyzer export them to a collector that has started.
fn export(stage: &mut Stage, url: &str) -> Result<()> {
    thread::sleep(Duration::from_secs(1));
    let analyzer = Program::analyzer(stage, &["--export", url])?;
    for node in 0..3 {
        stage.start(node)?;
        stage.await_output(node, "loaded topology")?;
    }
    stage.send(0..PACKETS)?;
    analyzer.await_delivered(PACKETS)?;
    // Another second's counts, which go with the analyzer's end.
    thread::sleep(Duration::from_millis(2500));
    let (_, out) = analyzer.stop("TERM")?;
    let last: Value = serde_json::from_str(out.lines().last().context("no status")?)?;
    ensure!(last["figures"]["export_lost_messages"] == 0, "{last}");
    ensure!(last["figures"]["export_skipped_packets"] == 0, "{last}");
    thread::sleep(Duration::from_millis(500));
    Ok(())
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn certificates_guard_the_records_and_are_read_anew_after_sighup() {
    netns::within_new(|| {
        let mut stage = begin(1, "")?;
        for ca in ["ca", "other"] {
            let [key, file] = [path(&stage, &format!("{ca}.key")), path(&stage, ca)];
            openssl(&format!(
                "req -x509 {NEW} -subj /CN={ca} -days 2 -keyout {key} -out {file}"
            ))?;
        }
        let [ca, own, key] = ["ca", "own", "own.key"].map(|name| path(&stage, name));
        stage.settings(&format!(
            "records_ca = {ca}\nrecords_certificate = {own}\nrecords_key = {key}\n"
        ))?;
        certify(&stage, "ca")?;
        let analyzer = Program::analyzer(&stage, &[])?;
        stage.start(0)?;
        stage.await_output(0, "loaded topology")?;
        stage.send(0..500)?;
        analyzer.await_delivered(500)?;
        // After its restart the node has a stranger's certificate.
        stage.kill(0)?;
        certify(&stage, "other")?;
        stage.start(0)?;
        stage.send(500..1000)?;
        stage.await_output(0, "it refuses this side: no authority")?;
        analyzer.await_output("not signed by an authority in 'records_ca'")?;
        // A right one, without a restart.
        certify(&stage, "ca")?;
        analyzer.signal("HUP")?;
        stage.hang_up(0)?;
        stage.await_output(0, "keys and certificates were read again")?;
        stage.send(1000..1500)?;
        analyzer.await_delivered(1500)?;
        let (log, out) = analyzer.stop("TERM")?;
        ensure!(
            log.contains("keys and certificates were read again"),
            "{log}"
        );
        let last: Value = serde_json::from_str(out.lines().last().context("no status")?)?;
        ensure!(last["export"] == 0, "{last}");
        ensure!(last["refusals"]["certificate"].as_u64() > Some(0), "{last}");
        Ok(())
    })
    .unwrap();
}

const NEW: &str = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes";

fn path(stage: &Stage, name: &str) -> String {
    stage.scratch.file(name).display().to_string()
}

/// Writes a certificate of the analyzer's address, signed by this authority, and its key.
fn certify(stage: &Stage, ca: &str) -> Result<()> {
    let path = |name: &str| path(stage, name);
    let extensions = format!("subjectAltName=IP:{ANALYZER}\n");
    let extensions = stage.scratch.write("extensions", &extensions)?;
    let (key, request, own) = (path("own.key"), path("request"), path("own"));
    openssl(&format!(
        "req -new {NEW} -subj /CN=own -keyout {key} -out {request}"
    ))?;
    let (ca, ca_key) = (path(ca), path(&format!("{ca}.key")));
    openssl(&format!(
        "x509 -req -in {request} -CA {ca} -CAkey {ca_key} -CAcreateserial -days 2 -extfile {} \
         -out {own}",
        extensions.display()
    ))
}

fn openssl(words: &str) -> Result<()> {
    let done = Command::new("openssl")
        .args(words.split_whitespace())
        .output();
    let done = done.context("starting openssl")?;
    let said = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "openssl {words}: {said}");
    Ok(())
}
