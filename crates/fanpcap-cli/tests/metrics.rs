//! `fanpcap metrics` with real members. A strict parser reads its text over HTTP and from a file.
#![forbid(unsafe_code)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fanpcap_testkit::await_for::{LIMIT, within};
use fanpcap_testkit::{Injector, Program, Scratch, Veth, await_for, member, netns, traffic};

const COMMAND: &str = env!("CARGO_BIN_EXE_fanpcap");

/// A sample: labels and number.
type Sample = (BTreeMap<String, String>, f64);

/// Parses the text format 0.0.4 more strictly than Prometheus does. Each family must have HELP,
/// TYPE, and then only its samples. Counters must end in `_total`, and no series may occur twice.
fn parse(text: &str) -> Result<BTreeMap<String, Vec<Sample>>> {
    ensure!(
        text.is_empty() || text.ends_with('\n'),
        "the last line has no end"
    );
    let mut families: BTreeMap<String, Vec<Sample>> = BTreeMap::new();
    let mut series = BTreeSet::new();
    let (mut helped, mut typed) = (None, None);
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').context("a HELP without text")?;
            ensure!(!help.is_empty() && !families.contains_key(name), "{line}");
            (helped, typed) = (Some(name), None);
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').context("a TYPE without one")?;
            ensure!(helped == Some(name) && typed.is_none(), "{line}");
            ensure!((kind == "counter") == name.ends_with("_total"), "{line}");
            ensure!(matches!(kind, "counter" | "gauge"), "{line}");
            typed = Some(name);
        } else {
            let (name, sample) = sample(line).with_context(|| line.to_owned())?;
            ensure!(typed == Some(name), "{line}: a sample without its TYPE");
            ensure!(series.insert((name, sample.0.clone())), "{line}: twice");
            families.entry(name.to_owned()).or_default().push(sample);
        }
    }
    Ok(families)
}

fn sample(line: &str) -> Result<(&str, Sample)> {
    let (name, mut rest) = line.split_once('{').context("no labels")?;
    ensure!(is_name(name), "no name");
    let mut labels = BTreeMap::new();
    while !rest.starts_with('}') {
        let (label, after) = rest.split_once("=\"").context("no label")?;
        ensure!(is_name(label), "no label's name: {label}");
        let (value, after) = quoted(after)?;
        ensure!(
            labels.insert(label.to_owned(), value).is_none(),
            "a label twice"
        );
        rest = after.strip_prefix(',').unwrap_or(after);
    }
    let number = rest.strip_prefix("} ").context("no number")?;
    ensure!(!number.contains(' '), "more than a number");
    Ok((name, (labels, number.parse()?)))
}

/// The value of a label up to its closing quote, and the rest of the text after the quote.
fn quoted(text: &str) -> Result<(String, &str)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => value.push(match letters.next() {
                Some((_, 'n')) => '\n',
                Some((_, same @ ('\\' | '"'))) => same,
                other => bail!("an escape of {other:?}"),
            }),
            other => value.push(other),
        }
    }
    bail!("no closing quote")
}

fn is_name(name: &str) -> bool {
    let first = name.bytes().next();
    first.is_some_and(|byte| byte.is_ascii_lowercase())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

fn metrics(arguments: &[&str]) -> Result<String> {
    let output = Command::new(COMMAND)
        .arg("metrics")
        .args(arguments)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}: {said}", output.status);
    Ok(String::from_utf8(output.stdout)?)
}

#[test]
fn the_parser_is_strict() {
    let head = "# HELP x_total X.\n# TYPE x_total counter\n";
    parse(&format!(
        "{head}x_total{{a=\"q\\\"\\\\\\n,}}\",b=\"\"}} 1\nx_total{{}} 2.5\n"
    ))
    .unwrap();
    for wrong in [
        "x_total{} 1\n",
        "# TYPE x_total counter\nx_total{} 1\n",
        "# HELP x X.\n# TYPE x counter\nx{} 1\n",
        "# HELP x_total X.\n# TYPE x_total counter\ny_total{} 1\n",
        "# HELP x_total X.\n# TYPE x_total counter\nx_total{} 1\nx_total{} 1\n",
        "# HELP x_total X.\n# TYPE x_total counter\nx_total{a=\"\\q\"} 1\n",
        "# HELP x_total X.\n# TYPE x_total counter\nx_total{a=\"b} 1\n",
        "# HELP x_total X.\n# TYPE x_total counter\nx_total{} one\n",
        "# HELP x_total X.\n# TYPE x_total counter\nx_total{} 1",
    ] {
        parse(wrong).unwrap_err();
    }
}

#[test]
fn a_device_without_sockets_is_told_when_it_was_asked_for() {
    let families = parse(&metrics(&["lo"]).unwrap()).unwrap();
    let (labels, _) = &families["fanpcap_device_received_packets_total"][0];
    assert_eq!(labels["device"], "lo");
    assert!(metrics(&["nosuch0"]).is_err());
}

#[test]
fn a_file_is_written() {
    let scratch = Scratch::new().unwrap();
    let path = scratch.file("fanpcap.prom");
    let said = metrics(&["lo", "--write", path.to_str().unwrap()]).unwrap();
    assert_eq!(said, "");
    let families = parse(&fs::read_to_string(&path).unwrap()).unwrap();
    assert!(families.contains_key("fanpcap_device_received_bytes_total"));
    let nowhere = scratch.file("no/fanpcap.prom");
    let error = metrics(&["lo", "--write", nowhere.to_str().unwrap()]);
    let error = error.unwrap_err().to_string();
    assert!(error.contains("no/fanpcap.prom"), "{error}");
}

/// A server that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // Ignore errors: these calls fail if the server has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn it_is_served_by_http() {
    let mut server = Command::new(COMMAND)
        .args(["metrics", "lo", "--listen", "0"])
        .stderr(Stdio::piped())
        .spawn()
        .map(Server)
        .unwrap();
    let mut line = String::new();
    let mut said = BufReader::new(server.0.stderr.take().unwrap());
    said.read_line(&mut line).unwrap();
    let address = line
        .trim_end()
        .strip_prefix("fanpcap: serving http://")
        .and_then(|rest| rest.strip_suffix("/metrics"))
        .expect(&line);
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let ask = |request: &str| -> Result<(String, String)> {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(request.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("no head")?;
        Ok((head.to_owned(), body.to_owned()))
    };
    for _ in 0..3 {
        let (head, body) = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        assert!(
            head.contains(&format!("Content-Length: {}\r\n", body.len())),
            "{head}"
        );
        assert!(
            parse(&body)
                .unwrap()
                .contains_key("fanpcap_device_received_packets_total")
        );
    }
    let (head, body) = ask("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 ") && body.is_empty(),
        "{head}"
    );
    let (head, _) = ask("GET /other HTTP/1.1\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    // A client that connects but sends nothing must not delay other clients.
    let idle: Vec<TcpStream> = (0..6).flat_map(|_| TcpStream::connect(address)).collect();
    let begun = Instant::now();
    let (head, _) = ask("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    assert!(
        head.starts_with("HTTP/1.1 200 ") && idle.len() == 6,
        "{head}"
    );
    let taken = begun.elapsed();
    assert!(taken < within(Duration::from_millis(1400)), "{taken:?}");
}

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn members_have_series_whose_counters_add_up() {
    netns::within_new(|| {
        Veth::new("fmet0", "fmet1", 1)?;
        let scratch = Scratch::new()?;
        let start = |number: u32| {
            let file = scratch.file(&format!("{number}.pcap"));
            let program = Program::tcpdump("fmet1", file)?.group(9, "hash+defrag");
            program.start(&scratch)
        };
        let members = [start(0)?, start(1)?];
        member::wait_for_members(9, 2)?;
        let injector = Injector::open("fmet0")?;
        for frame in traffic::frames(4, &traffic::flows(4, 16), 0..300)? {
            injector.send(&frame.bytes)?;
        }
        let families = await_for("the members' counters", LIMIT, || {
            for member in &members {
                member.signal("USR1")?;
            }
            let families = parse(&metrics(&[])?)?;
            let received = families.get("fanpcap_member_received_packets_total");
            let sum: f64 = received.into_iter().flatten().map(|sample| sample.1).sum();
            Ok((sum == 300.0).then_some(families))
        })?;
        let pids: BTreeSet<String> = members.iter().map(|one| one.pid().to_string()).collect();
        for name in [
            "received_packets_total",
            "dropped_packets_total",
            "counters_age_seconds",
        ] {
            let samples = &families[&format!("fanpcap_member_{name}")];
            let told: BTreeSet<String> = samples.iter().map(|it| it.0["pid"].clone()).collect();
            assert_eq!(told, pids, "{name}");
            for (labels, _) in samples {
                let own = ["device", "group", "mode", "program"].map(|it| labels[it].as_str());
                assert_eq!(own, ["fmet1", "9", "hash+defrag", "tcpdump"]);
            }
        }
        let (group, number) = &families["fanpcap_group_members"][0];
        assert_eq!((group["group"].as_str(), *number), ("9", 2.0));
        let dropped = &families["fanpcap_member_dropped_packets_total"][0];
        assert_eq!((dropped.0["cause"].as_str(), dropped.1), ("ring_full", 0.0));
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, packet sockets, BPF programs"]
fn a_group_on_xdp_tells_what_came_to_it_and_its_members_classes() {
    netns::within_new(|| {
        Veth::new("fmet2", "fmet3", 1)?;
        let scratch = Scratch::new()?;
        let program = scratch.file("classes.steer");
        let text =
            "main = do\n  when (has_port 53) drop\n  when is_tcp (classify 2)\n  steer_flow\n";
        fs::write(&program, text)?;
        let start = |number: usize, option: &str| {
            let file = scratch.file(&format!("{number}.pcap"));
            let mode = format!("file:{}{option}", program.display());
            let tcpdump = Program::tcpdump("fmet3", file)?.group(9, &mode);
            let member = tcpdump.set("PCAP_DRIVER", "xdp").start(&scratch)?;
            member::wait_for_members(9, number)?;
            Ok::<_, anyhow::Error>(member)
        };
        let members = [start(1, "")?, start(2, "+class=2")?];
        let injector = Injector::open("fmet2")?;
        for frame in traffic::frames(4, &traffic::flows(4, 16), 0..300)? {
            injector.send(&frame.bytes)?;
        }
        let families = await_for("the group's ledger", LIMIT, || {
            let families = parse(&metrics(&["fmet3"])?)?;
            let offered = families.get("fanpcap_group_offered_packets_total");
            let sum: f64 = offered.into_iter().flatten().map(|it| it.1).sum();
            Ok((sum == 300.0).then_some(families))
        })?;
        let fates = &families["fanpcap_group_offered_packets_by_fate_total"];
        let in_rings = fates.iter().find(|it| it.0["fate"] == "in_rings");
        assert_eq!(in_rings.map(|it| it.1), Some(300.0), "{fates:?}");
        assert_eq!(fates.iter().map(|it| it.1).sum::<f64>(), 300.0, "{fates:?}");
        assert!(families.contains_key("fanpcap_group_offered_packets_age_seconds"));
        let classes = &families["fanpcap_member_class"];
        let mut classes: Vec<(&str, f64)> = classes
            .iter()
            .map(|(labels, class)| (labels["pid"].as_str(), *class))
            .collect();
        classes.sort_by(|one, other| one.1.total_cmp(&other.1));
        let pids = members.each_ref().map(|it| it.pid().to_string());
        assert_eq!(classes, [(pids[0].as_str(), 0.0), (pids[1].as_str(), 2.0)]);
        Ok(())
    })
    .unwrap();
}
