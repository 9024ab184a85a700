//! The two ways in which `fanpcap gen` sends, by live frames and by sendmmsg(2), and its change
//! from live frames to sendmmsg(2).

use std::process::Command;
use std::thread;

use anyhow::Result;
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::await_for::await_for;
use fanpcap_testkit::netns;
use fanpcap_testkit::veth;

use crate::{DROP, FAR, NEAR, PASS, failed, outcome, pair, result};

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn as_many_frames_arrive_as_a_rate_asks_for() {
    netns::within_new(|| {
        let _attached = pair(DROP)?;
        for rate in [10_000, 100_000, 1_000_000] {
            for more in ["--live", "--live --gaps poisson", "--portable"] {
                // Skip this rate, which sendmmsg(2) can't reach.
                if rate == 1_000_000 && more == "--portable" {
                    continue;
                }
                let count = rate / 2;
                let result = result(&format!("--rate {rate} --count {count} {more}"))?;
                println!("{rate} {more}: {}", result["pps"]);
                assert_eq!(result["sent"], count, "{result}");
                assert_eq!(result["device_sent"], count, "{result}");
                assert_eq!(result["peer"]["received"], count, "{result}");
                assert_eq!(result["refused"], 0, "{result}");
            }
        }
        // The duration limits the number of frames: 100 ms at 10 kpps are at most 1000 frames, and
        // fewer on a busy machine.
        let result = result("--rate 10kpps --seconds 0.1 --live")?;
        let sent = result["sent"].as_u64().unwrap();
        assert!((1..=1000).contains(&sent), "{result}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn frames_that_are_refused_are_noticed() {
    netns::within_new(|| {
        // Without an XDP program on its peer, a veth accepts no live frames.
        drop(pair(PASS)?);
        veth::offloads_off(FAR)?;
        let auto = result("--count 1000")?;
        assert_eq!(auto["way"], "portable", "{auto}");
        let why = auto["instead"].as_str().unwrap();
        assert!(why.contains("refuses them"), "{auto}");
        assert_eq!(auto["peer"]["received"], 1000, "{auto}");
        let (live, _) = failed("--count 1000 --live")?;
        assert_eq!(live["way"], "live-frames", "{live}");
        assert_eq!(live["refused"], 1000, "{live}");
        assert_eq!(live["peer"]["received"], 0, "{live}");
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn frames_for_a_peer_that_takes_them_go_live_and_all_arrive() {
    netns::within_new(|| {
        let attached = pair(DROP)?;
        let taken = result("--seconds 0.3")?;
        assert_eq!(taken["way"], "live-frames", "{taken}");
        assert_eq!(taken["instead"], serde_json::Value::Null);
        assert_eq!(taken["peer"]["received"], taken["sent"], "{taken}");
        drop(attached);
        let (alone, said) = failed("--seconds 20 --live")?;
        assert!(said.contains("did not leave"), "{said}");
        assert!(alone["seconds"].as_f64().unwrap() < 15.0, "{alone}");
        println!(
            "dropped by the peer: {}, refused: {}",
            taken["pps"], alone["pps"]
        );
        assert_eq!(alone["refused"], alone["sent"], "{alone}");
        Ok(())
    })
    .unwrap();
}

/// Runs `done` while another process sends `rate` short frames a second at the near end.
fn among_others<T>(rate: u32, done: impl FnOnce() -> Result<T>) -> Result<T> {
    let arguments = format!("gen -i {NEAR} --portable --rate {rate} --len 60");
    let mut others = Command::new(env!("CARGO_BIN_EXE_fanpcap"))
        .args(arguments.split_whitespace())
        .stdout(std::process::Stdio::null())
        .spawn()?;
    let before = veth::counters(NEAR)?.sent;
    let result = await_for("other traffic", LIMIT, || {
        Ok((veth::counters(NEAR)?.sent > before + 10).then_some(()))
    })
    .and_then(|()| done());
    others.kill()?;
    others.wait()?;
    result
}

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn other_traffic_does_not_hide_that_frames_are_refused() {
    netns::within_new(|| {
        drop(pair(PASS)?);
        veth::offloads_off(FAR)?;
        for rate in [20, 300] {
            let auto = among_others(rate, || result("--count 5000 --len 200"))?;
            assert_eq!(auto["way"], "portable", "{rate}: {auto}");
            assert!(auto["peer"]["received"].as_u64() >= Some(5000), "{auto}");
        }
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, eBPF"]
fn frames_that_are_refused_from_some_time_on_go_the_other_way() {
    netns::within_new(|| {
        let attached = pair(DROP)?;
        let gone = thread::scope(|scope| {
            let before = veth::counters(FAR)?.received;
            let run = scope.spawn(|| outcome("--rate 100kpps --seconds 2"));
            // Wait for more frames than the sender sends when it tries live frames first. So the
            // program is detached only after the sender has chosen live frames.
            let began = await_for("frames", LIMIT, || {
                Ok((veth::counters(FAR)?.received > before + 20_000).then_some(()))
            });
            drop(attached);
            began.and_then(|()| run.join().unwrap())
        });
        let (status, result) = gone?;
        assert_eq!(result["way"], "portable", "{result}");
        assert!(result["refused"].as_u64() > Some(0) && !status, "{result}");
        assert!(
            result["peer"]["received"].as_u64() > Some(20_000),
            "{result}"
        );
        Ok(())
    })
    .unwrap();
}
