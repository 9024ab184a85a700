//! `fanpcap lang try`: the member that would get each packet.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use fanpcap_gen::{Description, Families, Lengths, Transports};
use fanpcap_testkit::frames as testkit;
use serde_json::{Value, json};

use super::{Capture, complaint, frames, per_member, said};

/// 256 flows of all kinds, in both directions.
fn answered() -> Description {
    Description {
        flows: 256,
        families: Families::Both,
        transports: Transports::Both,
        lengths: Lengths::Fixed(128),
        answers: true,
        ..Description::default()
    }
}

/// The numbers of all flows, of split flows, of flows whose directions reached different members,
/// and of flows seen in both directions. The last value is whether all flows are symmetric.
fn flows(told: &Value) -> Value {
    let of = &told["flows"];
    json!([
        of["total"],
        of["split"],
        of["apart"],
        of["both_directions"],
        of["symmetric"]
    ])
}

#[test]
fn a_mode_keeps_flows_together_and_shares_them() -> Result<()> {
    let told = Capture::described(&answered())?.tried_as(&["--mode", "flow"], 4)?;
    assert_eq!(flows(&told), json!([256, 0, 0, 256, true]));
    let packets = per_member(&told, "packets");
    ensure!(packets.iter().all(|packets| *packets > 60), "{packets:?}");
    assert_eq!(per_member(&told, "flows").iter().sum::<u64>(), 256);
    assert_eq!(told["not_in_group"], Value::Null);
    Ok(())
}

#[test]
fn what_goes_by_the_source_alone_is_not_symmetric() -> Result<()> {
    let told = Capture::described(&answered())?.tried("main = steer_key \"ip_src\"", 4)?;
    assert_eq!(told["flows"]["symmetric"], false);
    assert_eq!(told["flows"]["split"], 0);
    let apart = told["flows"]["apart"].as_u64().unwrap_or(0);
    // By chance, one in four flows has both directions at the same member, so about 192 of 256
    // flows do not.
    ensure!((150..=230).contains(&apart), "{told}");
    let example = &told["flows"]["examples"][0];
    ensure!(example["members"][0] != example["members"][1], "{example}");
    Ok(())
}

#[test]
fn turns_split_flows() -> Result<()> {
    let one_way = Description {
        flows: 3,
        lengths: Lengths::Imix,
        ..Description::default()
    };
    let capture = Capture::described(&one_way)?;
    let told = capture.tried("main = steer_rrobin", 4)?;
    assert_eq!(flows(&told), json!([3, 3, 0, 0, null]));
    assert_eq!(per_member(&told, "packets"), [capture.frames / 4; 4]);
    ensure!(
        told["caveats"].to_string().contains("steer_rrobin"),
        "{told}"
    );
    Ok(())
}

#[test]
fn what_is_filtered_out_is_dropped_and_counted() -> Result<()> {
    let capture = Capture::described(&answered())?;
    let program = "main = inc 7 >-> when is_tcp (inc 8) >-> udp >-> steer_to 6";
    let told = capture.tried(program, 4)?;
    // Half of the packets are UDP. With 4 members, `steer_to 6` selects member 2 (6 modulo 4).
    let half = capture.frames / 2;
    assert_eq!(per_member(&told, "packets"), [0, 0, half, 0]);
    assert_eq!(told["dropped"]["packets"], half);
    assert_eq!(told["counters"], json!({"7": capture.frames, "8": half}));
    assert_eq!(told["members"][2]["share"], 100.0);
    assert_eq!(flows(&told), json!([128, 0, 0, 128, true]));
    Ok(())
}

#[test]
fn each_member_samples_by_itself() -> Result<()> {
    let capture = Capture::described(&answered())?;
    let told = capture.tried("main = sample 1 4 >-> steer_flow", 2)?;
    let all = per_member(&capture.tried("main = steer_flow", 2)?, "packets");
    let kept = per_member(&told, "packets");
    assert_eq!(kept, [all[0].div_ceil(4), all[1].div_ceil(4)]);
    Ok(())
}

#[test]
fn what_no_kernel_group_does_is_done_and_told() -> Result<()> {
    let capture = Capture::described(&answered())?;
    let told = capture.tried("main = unit", 3)?;
    assert_eq!(per_member(&told, "packets"), [capture.frames; 3]);
    assert_eq!(told["copies"], 2 * capture.frames);
    assert_eq!(flows(&told), json!([256, 0, 0, 256, true]));
    ensure!(told["not_in_group"].is_string(), "{told}");

    let told = capture.tried("main = if is_tcp then classify 5 else double_steer_ip", 64)?;
    assert_eq!(told["classes"], json!({"5": capture.frames / 2}));
    // `double_steer_ip` gives each packet to the members of both addresses. So both members of a
    // flow get both directions.
    assert_eq!(flows(&told), json!([128, 0, 0, 128, true]));
    Ok(())
}

#[test]
fn members_of_a_class_share_its_packets() -> Result<()> {
    let capture = Capture::described(&answered())?;
    let program = "main = when is_tcp (classify 2) >-> steer_flow";
    let tried = |classes: &str| -> Result<Value> {
        let classes = ["--classes", classes, "--json"];
        let arguments = [&["try", "-e", program, capture.path()], &classes[..]].concat();
        Ok(serde_json::from_str(&said(&arguments)?)?)
    };
    let half = capture.frames / 2;
    let told = tried("2,0,0")?;
    let packets = per_member(&told, "packets");
    assert_eq!((packets[0], packets[1] + packets[2]), (half, half));
    ensure!(packets[1] > 0 && packets[2] > 0, "{packets:?}");
    assert_eq!(told["classes"], json!({}));
    assert_eq!(flows(&told), json!([256, 0, 0, 256, true]));
    let told = tried("5,0")?;
    assert_eq!(per_member(&told, "packets"), [0, half]);
    assert_eq!(told["classes"], json!({"2": half}));

    let refused =
        |program, classes| complaint(&["try", "-e", program, capture.path(), "--classes", classes]);
    let said = refused("main = steer_flow", "0,2")?;
    ensure!(said.contains("the program has no classify"), "{said}");
    let said = refused(program, "64")?;
    ensure!(said.contains("from 0 to 63"), "{said}");
    Ok(())
}

#[test]
fn each_packet_is_told_with_its_members() -> Result<()> {
    let mut frames = frames(&answered().pool()?);
    frames.truncate(40);
    frames.push(testkit::ethernet(0x0806, &[0; 46]));
    let capture = Capture::of(frames.iter().map(Vec::as_slice), usize::MAX)?;
    let program = "main = if is_tcp then steer_to 1 else (udp >-> steer_flow)";
    let told = capture.tried_as(&["-e", program, "--packets"], 3)?;
    let packets = told["each_packet"].as_array().cloned().unwrap_or_default();
    assert_eq!(packets.len() as u64, capture.frames);
    let mut counted = [0_u64; 3];
    for (number, packet) in (1..).zip(&packets) {
        assert_eq!(packet["number"], number);
        let members = packet["members"].as_array().cloned().unwrap_or_default();
        for member in &members {
            counted[usize::try_from(member.as_u64().unwrap_or(9))?] += 1;
        }
        let what = packet["what"].as_str().unwrap_or_default();
        ensure!(!what.starts_with("TCP ") || members == [1], "{packet}");
        assert_eq!(packet["dropped"], Value::from(what == "ARP"), "{packet}");
    }
    assert_eq!(per_member(&told, "packets"), counted);

    let text = said(&["try", "-e", program, "--packets", capture.path(), "-n", "3"])?;
    let line = |start: &str| {
        text.lines()
            .find(|line| line.trim_start().starts_with(start))
    };
    let (first, last) = (line("1  ").unwrap_or(""), line("41  ").unwrap_or(""));
    ensure!(
        first.contains(" > ") && first.contains(" bytes: member "),
        "{text}"
    );
    ensure!(
        last.contains("ARP, ") && last.ends_with(": dropped"),
        "{text}"
    );
    Ok(())
}

#[test]
fn each_packet_is_told_while_the_capture_is_read() -> Result<()> {
    // 14 MB. The crate that parses captures reads 8 MB at once.
    const PACKETS: usize = 10_000;
    let description = Description {
        lengths: Lengths::Fixed(1400),
        ..answered()
    };
    let frames = frames(&description.pool()?);
    let frames = frames.iter().map(Vec::as_slice).cycle().take(PACKETS);
    let capture = Capture::of(frames, usize::MAX)?;
    let told = capture.tried_as(&["--mode", "flow", "--packets"], 4)?;
    let numbers = told["each_packet"].as_array().context("packets")?.iter();
    let numbers: Vec<_> = numbers.filter_map(|it| it["number"].as_u64()).collect();
    assert_eq!(numbers, (1..=PACKETS as u64).collect::<Vec<_>>());

    let arguments = ["try", "--mode", "flow", "--packets", capture.path()];
    let text = said(&arguments)?;
    let starts = (1..=PACKETS).map(|number| format!("{number}  "));
    for (line, start) in text.lines().zip(starts) {
        ensure!(line.trim_start().starts_with(&start), "{start}: {line}");
    }
    ensure!(text.contains(&format!(": {PACKETS} packets, ")), "{text}");

    // The pipe has room for a part of the lines, so the capture is truncated before it is read.
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanpcap"));
    let command = command.arg("lang").args(arguments).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut output = BufReader::new(child.stdout.take().context("output")?);
    let mut text = String::new();
    output.read_line(&mut text)?;
    OpenOptions::new()
        .write(true)
        .open(&capture.path)?
        .set_len(0)?;
    output.read_to_string(&mut text)?;
    ensure!(child.wait()?.success(), "{text}");
    let read = text.lines().filter(|line| line.contains(" > ")).count();
    ensure!((1..PACKETS).contains(&read), "{read} packets were read");
    Ok(())
}

#[test]
fn fragments_that_come_late_are_told() -> Result<()> {
    let description = Description {
        flows: 64,
        fragments: Some(1),
        lengths: Lengths::Fixed(600),
        ..Description::default()
    };
    let mut frames = frames(&description.pool()?);
    let tried = |frames: &[Vec<u8>]| {
        Capture::of(frames.iter().map(Vec::as_slice), usize::MAX)?.tried_as(&["--mode", "flow"], 8)
    };
    let told = tried(&frames)?;
    let datagrams = frames.len() / 3;
    let expected =
        |late| json!({"total": datagrams, "split": 0, "late": late, "late_fragments": late});
    assert_eq!(told["datagrams"], expected(0));
    assert_eq!(flows(&told), json!([64, 0, 0, 0, null]));

    // Swap the first two fragments of the first flow's first datagram.
    frames.swap(0, 1);
    let told = tried(&frames)?;
    assert_eq!(told["datagrams"], expected(1));
    assert_eq!(told["flows"]["split"], 0);

    // Round robin splits every datagram.
    let told = Capture::of(frames.iter().map(Vec::as_slice), usize::MAX)?
        .tried("main = steer_rrobin", 8)?;
    assert_eq!(told["datagrams"]["split"], datagrams);
    Ok(())
}

#[test]
fn tags_are_where_the_kernel_has_them() -> Result<()> {
    let tagged = Description {
        vlans: vec![42],
        ..Description::default()
    };
    let capture = Capture::described(&tagged)?;
    // The kernel keeps the tag outside the frame. So the byte at this offset is IPv4's first byte,
    // which is the same in all frames.
    let told = capture.tried("main = filter (has_vid 42) >-> steer_field 14 1", 4)?;
    assert_eq!(told["dropped"]["packets"], 0);
    let packets = per_member(&told, "packets");
    assert_eq!(packets.iter().filter(|packets| **packets > 0).count(), 1);
    Ok(())
}

#[test]
fn what_went_by_an_outer_header_is_told() -> Result<()> {
    let datagram = testkit::udp(1111, 2222, &[0; 20]);
    let plain = testkit::ethernet(0x0800, &testkit::v4(17, 0, &datagram));
    let esp = testkit::ethernet(0x0800, &testkit::v4(50, 0, &[7; 60]));
    let labelled = testkit::ethernet(0x8847, &[&[0, 1, 1, 64][..], &[0xab; 60]].concat());
    let frames = [
        &plain, &plain, &plain, &esp, &esp, &labelled, &plain, &plain,
    ];
    let capture = Capture::of(frames.map(|frame| &frame[..]), 65_535)?;
    let told = capture.tried_as(&["--mode", "flow"], 4)?;
    let unread = &told["flows"]["unread_packets"];
    assert_eq!(*unread, json!({"ESP": 2, "MPLS": 1}), "{told}");
    assert_eq!(told["flows"]["unread_share"], 37.5);
    Ok(())
}

#[test]
fn packets_that_were_captured_in_part_are_told() -> Result<()> {
    let frames = frames(&answered().pool()?);
    let capture = Capture::of(frames.iter().map(Vec::as_slice), 64)?;
    let told = capture.tried("main = steer_to 0", 1)?;
    ensure!(
        told["caveats"].to_string().contains("captured in part"),
        "{told}"
    );
    Ok(())
}

#[test]
fn text_and_errors_are_for_people() -> Result<()> {
    let capture = Capture::described(&answered())?;
    let text = said(&["try", "-e", "main = steer_flow", capture.path()])?;
    for part in [
        "member 3",
        "dropped",
        "skew x1.",
        "flows: 256, 0 split",
        "symmetric",
    ] {
        ensure!(text.contains(part), "{part} in:\n{text}");
    }
    let wrong = complaint(&["try", "-e", "main = steer_flwo", capture.path()])?;
    ensure!(wrong.contains("steer_flow"), "{wrong}");
    let missing = complaint(&["try", "--mode", "flow", "/nonexistent"])?;
    ensure!(missing.contains("/nonexistent"), "{missing}");
    let unknown = complaint(&["try", "--mode", "flwo", capture.path()])?;
    ensure!(unknown.contains("flow"), "{unknown}");
    Ok(())
}

#[test]
fn the_argument_that_is_missing_is_named() -> Result<()> {
    let said = complaint(&["try", "ok.pfq"])?;
    ensure!(said.contains("fanpcap lang try ok.pfq CAPTURE"), "{said}");
    let said = complaint(&["explain"])?;
    ensure!(said.contains("required") && said.contains("FILE"), "{said}");
    Ok(())
}
