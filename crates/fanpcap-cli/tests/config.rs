//! `fanpcap config` in separate namespaces. It must show the settings that an application gets,
//! where each setting comes from, and settings without effect.
#![forbid(unsafe_code)]

use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use fanpcap_testkit::{Program, Scratch, Veth, library, member, netns};
use serde_json::Value;

#[path = "pages/json.rs"]
mod json_page;

const COMMAND: &str = env!("CARGO_BIN_EXE_fanpcap");
const PAGE: &str = include_str!("../../../docs/config-json.md");

fn config(arguments: &[&str], variables: &[(&str, &str)]) -> Result<Output> {
    let mut command = Command::new(COMMAND);
    // Ignore the machine's own settings.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().to_uppercase().starts_with("PCAP_") {
            command.env_remove(name);
        }
    }
    command.env("PCAP_CONFIG", "/dev/null");
    command.arg("config").args(arguments);
    Ok(command.envs(variables.iter().copied()).output()?)
}

fn config_json(arguments: &[&str], variables: &[(&str, &str)]) -> Result<(i32, Value)> {
    let output = config(&[arguments, &["--json"]].concat(), variables)?;
    let told: Value = serde_json::from_slice(&output.stdout)?;
    Ok((output.status.code().context("an exit status")?, told))
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_fails() {
    let output = config(&[], &[("PCAP_GROUP", "x5")]).unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("PCAP_GROUP=x5\n           ^"), "{said}");
    let (status, told) = config_json(&["any"], &[("PCAP_FANOUT", "hash")]).unwrap();
    assert_eq!(status, 1);
    assert_eq!(told["devices"][0]["error"]["name"], "mode-without-group");
    let (status, told) = config_json(&[], &[("PCAP_GROUP", "x5")]).unwrap();
    assert_eq!(
        (status, &told["error"]["name"]),
        (1, &Value::from("not-a-number"))
    );
    assert_eq!(told["error"]["column"], 12);
}

#[test]
fn a_device_that_is_not_there_is_said_so() {
    let output = config(&["nosuch7"], &[]).unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("no network device has this name"), "{said}");
}

#[test]
fn what_comes_from_a_poller_is_told() {
    let variables = [("PCAP_DRIVER", "packet"), ("PCAP_GROUP", "5")];
    let (status, told) = config_json(&["lo"], &variables).unwrap();
    let told = &told["devices"][0];
    assert_eq!((status, &told["driver"]), (0, &Value::from("packet")));
    assert_eq!(
        (&told["steal"], &told["outgoing"]),
        (&Value::Null, &Value::from(true))
    );
    assert_eq!(told["default_ring_bytes"], 64 << 20);
    // The kernel knows no groups of pollers, so it is not asked what the group has.
    assert_eq!(told["mode"], "flow");
    let why = "the default, unless the group has another mode";
    assert_eq!(told["mode_by_default"], why);
    let output = config(
        &["lo"],
        &[("PCAP_DRIVER", "packet"), ("PCAP_RING", "3145729")],
    )
    .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    for line in [
        "sent packets captured too",
        "read by      fanpcap",
        "ring         4 MiB",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    assert!(!said.contains("host gets"), "{said}");
}

#[test]
fn applications_that_load_another_library_are_told() {
    let said = |loads: &str| -> Result<String> {
        let variables = [("PCAP_GROUP", "5"), ("LD_LIBRARY_PATH", loads)];
        let output = config(&["lo"], &variables)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let told = "\nThese settings do not apply to applications started from here";
    let other = said("").unwrap();
    assert!(other.contains(told), "{other}");
    let staged = library::library_dir().unwrap();
    let ours = said(&staged.display().to_string()).unwrap();
    assert!(!ours.contains(told), "{ours}");
}

#[test]
#[ignore = "needs root: namespaces"]
fn each_value_has_its_place_and_what_is_in_vain_its_reason() {
    netns::within_new(|| {
        Veth::new("ux0", "ux1", 1)?;
        let scratch = Scratch::new()?;
        let text =
            "def_group = 11\ngroup_ux1 = 1\nfanout@6 = lb\nfanout@1 = main = tcp >-> steer_flow\nring@ux1 = 3M\n";
        scratch.write("pcap.conf", text)?;
        let file = scratch.file("pcap.conf").display().to_string();
        let variables = [
            ("PCAP_CONFIG", file.as_str()),
            ("PCAP_GROUP_uxO", "5"),
            ("PCAP_CLUSTER", "5"),
            ("PCAP_CAPLEN", "96"),
        ];
        let (status, told) = config_json(&["ux1"], &variables)?;
        ensure!(status == 0, "{told}");
        json_page::check(PAGE, &told)?;
        let device = &told["devices"][0];
        let place = |line: u32| Value::from(format!("{file}:{line}"));
        assert_eq!(
            (&device["group"], &device["group_from"]),
            (&1.into(), &place(2))
        );
        assert_eq!(device["mode"], "main = tcp >-> steer_flow");
        assert_eq!(
            (&device["is_program"], &device["mode_from"]),
            (&true.into(), &place(4))
        );
        assert_eq!(device["caplen_from"], "PCAP_CAPLEN=96");
        assert_eq!(
            (&device["ring_bytes"], &device["ring_from"]),
            (&(3 << 20).into(), &place(5))
        );
        assert_eq!(device["default_ring_bytes"], 3 << 20);
        let rows = told["without_effect"].as_array().context("rows")?;
        let rows: Vec<_> = rows
            .iter()
            .map(|row| (&row["setting"], &row["reason"]))
            .collect();
        let expected = [
            ("def_group = 11", "overridden"),
            ("PCAP_GROUP_uxO=5", "no-such-device"),
            ("fanout@6 = lb", "nobodys-group"),
            ("PCAP_CLUSTER=5", "unknown-name"),
        ]
        .map(|(setting, reason)| (Value::from(setting), Value::from(reason)));
        let expected: Vec<_> = expected.iter().map(|(one, other)| (one, other)).collect();
        assert_eq!(rows, expected);

        let output = config(&["ux1"], &variables)?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(said.contains("ring         3 MiB "), "{said}");
        let output = config(&[], &variables)?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        for line in [
            "did you mean 'PCAP_GROUP_ux0', or a device with another similar name?",
            "did you mean 'PCAP_GROUP'?",
            "ux0     11     flow",
        ] {
            assert!(said.contains(line), "{line} in:\n{said}");
        }
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces"]
fn each_device_of_several_is_told() {
    netns::within_new(|| {
        Veth::new("ux0", "ux1", 1)?;
        let (_, told) = config_json(&["ux0^ux1"], &[("PCAP_GROUP_ux1", "5")])?;
        let devices = told["devices"].as_array().context("devices")?.iter();
        let groups: Vec<&Value> = devices.map(|device| &device["group"]).collect();
        assert_eq!(groups, [&Value::Null, &5.into()]);
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn the_mode_of_a_member_without_one_is_foretold() {
    netns::within_new(|| {
        Veth::new("ux0", "ux1", 1)?;
        let scratch = Scratch::new()?;
        let foretold = |device: &str| {
            let (_, told) = config_json(&[device], &[("PCAP_GROUP", "7")])?;
            json_page::check(PAGE, &told)?;
            let device = &told["devices"][0];
            let both = ["mode", "mode_by_default"].map(|name| device[name].as_str());
            anyhow::Ok(both.map(|text| text.unwrap_or_default().to_owned()))
        };
        assert_eq!(foretold("ux1")?, ["flow", "the default"]);
        let why = "flow reads only Ethernet frames, and any has other frames too";
        assert_eq!(foretold("any")?, ["hash", why]);
        for mode in ["lb+defrag", "flow_2_tuple"] {
            let program = Program::tcpdump("ux1", scratch.file("out.pcap"))?.group(7, mode);
            let member = program.start(&scratch)?;
            assert_eq!(foretold("ux1")?, [mode, "the group's own"]);
            member.stop()?;
            member::wait_for_members(7, 0)?;
        }
        let output = config(&["ux1"], &[("PCAP_GROUP", "7")])?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(
            said.contains("mode         flow                     the default"),
            "{said}"
        );
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, packet sockets"]
fn it_says_what_the_library_does() {
    netns::within_new(|| {
        Veth::new("ux0", "ux1", 1)?;
        let scratch = Scratch::new()?;
        let program = Program::tcpdump("ux1", scratch.file("out.pcap"))?.group(7, "lb+defrag");
        let _member = program.start(&scratch)?;
        member::wait_for_members(7, 1)?;
        let variables = [("PCAP_GROUP", "7"), ("PCAP_FANOUT", "lb+defrag")];
        let (_, told) = config_json(&["ux1"], &variables)?;
        let top = top_once("ux1")?;
        let (said, joined) = (&told["devices"][0], &top["devices"][0]["groups"][0]);
        assert_eq!(
            (&said["group"], &said["mode"]),
            (&joined["group"], &joined["mode"])
        );
        assert_eq!(said["group"], 7);
        // The ring of a member must have the size that `fanpcap config` shows.
        let ring = &joined["members"][0]["ring_bytes"];
        assert_eq!(&said["default_ring_bytes"], ring);
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces, XDP"]
fn it_says_what_the_host_gets_of_a_device_on_xdp() {
    netns::within_new(|| {
        Veth::new("ux0", "ux1", 1)?;
        let scratch = Scratch::new()?;
        let program = Program::tcpdump("ux1", scratch.file("out.pcap"))?.group(7, "flow");
        let program = program.set("PCAP_DRIVER", "xdp").set("PCAP_RING", "32M");
        let _member = program.start(&scratch)?;
        member::wait_for_members(7, 1)?;
        let set = [("PCAP_DRIVER", "xdp"), ("PCAP_RING", "32M")];
        let variables = [("PCAP_GROUP", "7"), set[0], set[1]];
        let (_, told) = config_json(&["ux1"], &variables)?;
        let said = &told["devices"][0];
        assert_eq!(
            (&said["steal"], &said["outgoing"]),
            (&"no".into(), &true.into())
        );
        let text = config(&["ux1"], &variables)?;
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        for line in ["host gets    every packet  ", "sent packets captured too  "] {
            assert!(text.contains(line), "{text}");
        }
        let seen = top_once("ux1")?;
        let ring = seen["devices"][0]["groups"][0]["members"][0]["ring_bytes"].as_u64();
        assert_eq!(ring, said["default_ring_bytes"].as_u64());
        assert!(said["default_sent_ring_bytes"].is_null());
        assert!(text.contains(" 32 MiB "), "{text}");
        let (_, told) = config_json(&["ux1"], &variables[..2])?;
        assert_eq!(told["devices"][0]["default_ring_bytes"], 64 << 20);
        let variables = [variables[0], variables[1], ("PCAP_RING", "3M")];
        let (_, told) = config_json(&["ux1"], &variables)?;
        let of = ["ring", "default_ring"];
        let of = of.map(|name| told["devices"][0][format!("{name}_bytes")].as_u64());
        assert_eq!(of, [3_u64 << 20, 4 << 20].map(Some));
        Ok(())
    })
    .unwrap();
}

#[test]
#[ignore = "needs root: namespaces"]
fn names_are_shown_as_they_were_written() {
    netns::within_new(|| {
        Veth::new("ux0", "ux1", 1)?;
        let scratch = Scratch::new()?;
        scratch.write("pcap.conf", "group = 7\nfanout@7 = lb\nmember = east\n")?;
        let file = scratch.file("pcap.conf").display().to_string();
        let variables = [("PCAP_CONFIG", file.as_str()), ("PCAP_DRIVER", "xdp")];
        let (_, told) = config_json(&["ux1"], &variables)?;
        json_page::check(PAGE, &told)?;
        let device = &told["devices"][0];
        assert_eq!(device["member"], "east");
        assert_eq!(device["member_from"], format!("{file}:3"));
        assert_eq!(device["mode"], "main = steer_rrobin");
        let text = config(&["ux1"], &variables)?;
        let text = String::from_utf8_lossy(&text.stdout).into_owned();
        for line in [
            "mode         lb (main = steer_rrobin) ",
            "member       east ",
        ] {
            ensure!(text.contains(line), "{text}");
        }
        Ok(())
    })
    .unwrap();
}

fn top_once(device: &str) -> Result<Value> {
    let arguments = ["top", device, "--once", "--json", "--interval", "0.1"];
    let top = Command::new(COMMAND).args(arguments).output()?;
    Ok(serde_json::from_slice(&top.stdout)?)
}
