//! The ends of `fanpcap gen`, and the result that it prints at its end.

use std::fs::File;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use fanpcap_testkit::await_for::{LIMIT, await_for, within};
use fanpcap_testkit::member;
use fanpcap_testkit::netns;
use fanpcap_testkit::veth;

use crate::{DROP, FAR, NEAR, WAYS, fanpcap_gen, pair, result};

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn an_interrupt_ends_it_with_the_result() {
    netns::within_new(|| {
        let _attached = pair(DROP)?;
        for more in ["--portable", "--live", "--live --rate 1000"] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_fanpcap"));
            let arguments = format!("gen -i {NEAR} --json {more}");
            let before = veth::counters(FAR)?.received;
            let child = command
                .args(arguments.split_whitespace())
                .stdout(std::process::Stdio::piped())
                .spawn()?;
            await_for("the first frames", LIMIT, || {
                Ok((veth::counters(FAR)?.received > before + 10).then_some(()))
            })?;
            thread::sleep(Duration::from_millis(30));
            member::signal(child.id(), "TERM")?;
            let output = child.wait_with_output()?;
            assert!(output.status.success());
            let result: serde_json::Value = serde_json::from_slice(&output.stdout)?;
            assert_eq!(result["peer"]["received"], result["sent"], "{result}");
        }
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn a_time_is_kept_when_the_rate_is_not() {
    netns::within_new(|| {
        let _attached = pair(DROP)?;
        for way in WAYS {
            let result = result(&format!("--rate 400Gbit --len 1500 --seconds 0.5 {way}"))?;
            let seconds = result["seconds"].as_f64().unwrap();
            assert!(
                seconds < within(Duration::from_millis(700)).as_secs_f64(),
                "{result}"
            );
            assert_eq!(result["kept"], false, "{result}");
            assert_eq!(result["asked"], "400Gbit/s", "{result}");
        }
        // On a busy machine it is late at times.
        await_for("a rate that is kept", LIMIT, || {
            let slow = result("--rate 2000 --seconds 0.2")?;
            Ok((slow["kept"] == true).then_some(()))
        })?;
        let text = fanpcap_gen(&format!("-i {NEAR} --rate 400Gbit --seconds 0.2"))?;
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        assert!(text.contains("asked 400Gbit/s, reached"), "{text}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn whichever_end_comes_first_is_the_end() {
    netns::within_new(|| {
        let _attached = pair(DROP)?;
        for way in WAYS {
            let sent = |more: &str| anyhow::Ok(result(&format!("{more} {way}"))?["sent"].clone());
            assert_eq!(sent("--flows 10 --loops 3 --count 1000")?, 30);
            assert_eq!(sent("--flows 10 --loops 3 --count 7")?, 7);
            assert_eq!(sent("--flows 10 --loops 3 --seconds 5")?, 30);
            // On a busy machine the sender waits for the CPU and sends fewer frames in this time.
            let timed = sent("--flows 10 --loops 3000 --seconds 0.1 --rate 1000")?;
            assert!((1..=100).contains(&timed.as_u64().unwrap()), "{timed}");
        }
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn a_result_that_nobody_reads_is_no_panic() {
    netns::within_new(|| {
        let _attached = pair(DROP)?;
        let run = |out: std::process::Stdio| {
            let arguments = format!("gen -i {NEAR} --count 100 --portable");
            let mut command = Command::new(env!("CARGO_BIN_EXE_fanpcap"));
            let command = command.args(arguments.split_whitespace()).stdout(out);
            anyhow::Ok(command.output()?)
        };
        let full = run(File::create("/dev/full")?.into())?;
        let said = String::from_utf8_lossy(&full.stderr).into_owned();
        assert_eq!(full.status.code(), Some(1), "{said}");
        assert!(said.contains("writing the result"), "{said}");
        let mut gone = Command::new("true")
            .stdin(std::process::Stdio::piped())
            .spawn()?;
        let pipe = gone.stdin.take().context("its pipe")?;
        gone.wait()?;
        let closed = run(pipe.into())?;
        assert_eq!(closed.status.code(), Some(0));
        assert!(closed.stderr.is_empty());
        Ok(())
    })
    .unwrap();
}
