//! The connections from nodes to analyzers, which refuse strangers.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::mirror::HOST;
use fanpcap_testkit::netns;
use serde_json::Value;

use crate::program::Program;
use crate::stage::Stage;

fn begin(nodes: usize, more: &str) -> Result<Stage> {
    let mut stage = Stage::bare(nodes)?;
    let key = stage.scratch.write("key", &"k".repeat(32))?;
    fs::set_permissions(&key, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    stage.settings(&format!(
        "mode = capture\nheader = 80\nanalyzers = {HOST}:7710\ntransport = tcp\n\
         key_file = {}\n{more}",
        key.display()
    ))?;
    Ok(stage)
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
        // The node restarts with a certificate of an authority that the analyzer does not trust.
        stage.kill(0)?;
        certify(&stage, "other")?;
        stage.start(0)?;
        stage.send(500..1000)?;
        stage.await_output(0, "it refuses this side: no authority")?;
        analyzer.await_output("not signed by an authority in 'records_ca'")?;
        // The node gets a valid certificate, without a restart.
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

/// Writes a certificate for the analyzer's address, signed by the authority `ca`, and its private
/// key.
fn certify(stage: &Stage, ca: &str) -> Result<()> {
    let path = |name: &str| path(stage, name);
    let extensions = format!("subjectAltName=IP:{HOST}\n");
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
