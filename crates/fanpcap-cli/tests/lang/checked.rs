//! `fanpcap lang check`: the messages on steering programs, and the exit status.

use std::fs;
use std::io::{self, Write};
use std::process::{Command, Output, Stdio};

use fanpcap_testkit::Scratch;

/// Runs `fanpcap lang check` on this text, which the command gets on standard input.
fn check(program: impl AsRef<[u8]>) -> io::Result<Output> {
    let mut child = Command::new(env!("CARGO_BIN_EXE_fanpcap"))
        .args(["lang", "check", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    child
        .stdin
        .take()
        .map(|mut into| into.write_all(program.as_ref()))
        .transpose()?;
    child.wait_with_output()
}

/// What the command says besides the line about a correct program.
fn noted(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn said(output: &Output) -> String {
    let (out, err) = (&output.stdout, &output.stderr);
    String::from_utf8_lossy(out).into_owned() + &String::from_utf8_lossy(err)
}

#[test]
fn a_program_that_is_right_has_a_line() {
    for (program, line) in [
        ("main = do\n  tcp\n  inner steer_flow\n", "1 definition"),
        (
            "half = steer_to 1\ndns = when (has_port 53) half\nmain = dns >-> steer_to 0\n",
            "3 definitions, steer_to needs 2 members",
        ),
        (
            "main = if is_tcp then steer_to 0 else steer_to 0",
            "1 definition, steer_to needs 1 member",
        ),
    ] {
        let output = check(program).unwrap();
        assert!(output.status.success(), "{}", said(&output));
        let line = format!("standard input: ok: {line}\n");
        assert_eq!(String::from_utf8_lossy(&output.stdout), line);
    }
}

#[test]
fn a_program_is_checked_that_the_command_line_has() {
    let check = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fanpcap"));
        command
            .args(["lang", "check"])
            .args(words)
            .output()
            .unwrap()
    };
    for option in ["-e", "--text"] {
        let right = check(&[option, "main = tcp >-> steer_flow"]);
        assert!(right.status.success(), "{}", said(&right));
        assert_eq!(said(&right), "--text: ok: 1 definition\n");
        let wrong = check(&[option, "main = tpc"]);
        assert_eq!(wrong.status.code(), Some(1));
        assert!(said(&wrong).starts_with("--text:1:8: "), "{}", said(&wrong));
        assert!(wrong.stdout.is_empty(), "{}", said(&wrong));
    }
    for usage in [&[][..], &["-e", "main = tcp", "steer.pfq"]] {
        assert_eq!(check(usage).status.code(), Some(2), "{usage:?}");
    }
}

#[test]
fn a_function_without_effect_is_warned_of_with_its_place() {
    let output = check("main = do\n  when (has_port 53) (steer_to 0)\n  steer_flow\n").unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let warning = "\
standard input:2:23: warning: 'steer_to 0' has no effect: steer_flow follows; for some packets only: \
'if p then f else g'
  when (has_port 53) (steer_to 0)
                      ^
";
    assert_eq!(noted(&output), warning);
}

#[test]
fn what_a_group_refuses_is_noted_and_no_error() {
    let output = check("main = tcp >-> broadcast").unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(
        noted(&output),
        "standard input: note: a group on packet sockets refuses it: `broadcast` gives a packet to all members, \
         which a kernel group can't do, but the XDP engine can: set PCAP_DRIVER=xdp\n"
    );
}

#[test]
fn what_is_too_long_for_the_kernel_is_refused_as_at_joining() {
    for (line, times, begins) in [
        ("when is_rtp (inc 0)", 900, "the program has at least "),
        ("inc 1", 4000, "its filter has no room in the socket: "),
    ] {
        let lines = format!("  {line}\n").repeat(times);
        let output = check(format!("main = do\n{lines}  steer_flow\n")).unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        let begins = format!("standard input: {begins}");
        assert!(said(&output).starts_with(&begins), "{}", said(&output));
    }
}

#[test]
fn what_is_not_utf_8_has_a_place() {
    let output = check(b"-- caf\xe9\nmain = do\n  tcp \xff").unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    let is_placed =
        said.starts_with("standard input:3:7: ") && said.contains("; save the text as UTF-8\n");
    assert!(is_placed, "{said}");
    assert!(check(b"-- caf\xe9\nmain = tcp").unwrap().status.success());
}

#[test]
fn what_only_the_kernel_knows_is_refused() {
    let output = check("filter \"inbound\" >-> steer_flow").unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(
        said.starts_with("standard input:1:8: expected a pcap expression"),
        "{said}"
    );
}

#[test]
fn a_program_that_is_wrong_is_shown_with_its_place() {
    let output = check("main = do\n  tcp\n  steer_flwo\n").unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        said(&output),
        "standard input:3:3: expected a function, found the unknown name 'steer_flwo'; did you mean \
         'steer_flow'?\n  steer_flwo\n  ^\n"
    );
}

#[test]
fn expressions_are_compiled_by_libpcap() {
    let output = check("filter \"tcp port 443 or vlan\" >-> steer_flow").unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let output = check("filter \"tpc port 443\"").unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(
        said.starts_with("standard input:1:8: expected a pcap expression, found 'tpc port 443': "),
        "{said}"
    );
}

#[test]
fn all_files_are_checked() {
    let scratch = Scratch::new().unwrap();
    let (right, wrong) = (scratch.file("right.hs"), scratch.file("wrong.hs"));
    fs::write(&right, "main = steer_flow").unwrap();
    fs::write(&wrong, "main = is_tcp").unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_fanpcap"))
        .args(["lang", "check"])
        .args([&wrong, &scratch.file("missing.hs"), &right])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = said(&output);
    assert!(
        said.contains("wrong.hs:1:8: expected a function, found the predicate 'is_tcp'"),
        "{said}"
    );
    assert!(
        said.contains("reading ") && said.contains("missing.hs: No such file"),
        "{said}"
    );
    let right = format!("{}: ok: 1 definition\n", right.display());
    assert_eq!(String::from_utf8_lossy(&output.stdout), right);
}
