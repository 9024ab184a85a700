//! `fanpcap lang explain`: the types, the parts and the cost of steering programs.

use anyhow::{Result, ensure};

use super::{complaint, lang, said};

fn explained(program: &str, more: &[&str]) -> Result<String> {
    said(&[&["explain", "-e", program], more].concat())
}

/// The lines below the first line that begins with `begin`, as far as they are indented by at least
/// six spaces.
fn below<'t>(text: &'t str, begin: &str) -> Vec<&'t str> {
    let lines = text
        .lines()
        .skip_while(|line| !line.trim_start().starts_with(begin));
    let deeper = lines.skip(1).take_while(|line| line.starts_with("      "));
    deeper.map(str::trim).collect()
}

#[test]
fn definitions_have_types() -> Result<()> {
    let program = "\
web = has_port 80 .||. has_port 443
limit = 64
local = 10.0.0.0/8
tally net n = when (has_addr net) (inc n)
twice f = f >-> f
main = do
  tally local 3
  when (ip_ttl .< limit) drop
  filter web
  twice steer_flow
";
    let text = explained(program, &[])?;
    for line in [
        "web    predicate",
        "limit  number",
        "local  string",
        "tally  net -> number -> function",
        "twice  function -> function",
        "main   function",
    ] {
        ensure!(text.contains(line), "{line} in:\n{text}");
    }
    Ok(())
}

#[test]
fn a_program_is_cut_in_two() -> Result<()> {
    let program =
        "main = tcp >-> inc 3 >-> unless (has_port 22) (steer_link >-> sample 1 2) >-> steer_flow";
    let text = explained(program, &[])?;
    assert_eq!(
        below(&text, "which member gets the packet, decided"),
        ["unless (has_port 22) steer_link", "steer_flow"]
    );
    let filtering = below(&text, "whether the packet is kept");
    assert_eq!(filtering[..2], ["filter is_tcp", "inc 3"]);
    ensure!(filtering.last() == Some(&"filter has_ip"), "{filtering:?}");
    Ok(())
}

#[test]
fn parts_are_programs_of_the_language() -> Result<()> {
    let program = "\
main = do
  when (vlan_id [1, 2, 3] .||. is_gtp_up) (inc 1)
  par (inner (src (port 53)) >-> steer_rtp) (steer_field_symmetric 26 30 4)
  unless (bloom 4 [\"10.0.0.1\", \"10.0.0.2\"] 24 .&&. ip_tos `all_bit` 3) (steer_local_net \"10.0.0.0\" 8 24)
  when (share 1 4 \"ip_src,vlan\") (put_state 7)
  if has_state 7 then steer_key key_5tuple else inv (inner (addr 2001:db8::/32))
";
    let text = explained(program, &[])?;
    let parts = [
        "which member gets the packet, decided",
        "whether the packet is kept",
    ]
    .map(|part| below(&text, part));
    for lines in parts {
        ensure!(!lines.is_empty(), "{text}");
        let again = format!("main = do\n  {}\n", lines.join("\n  "));
        let text = explained(&again, &[])?;
        ensure!(text.contains("main  function"), "{text}");
    }
    Ok(())
}

#[test]
fn what_a_kernel_group_can_not_do_is_told_with_the_reason() -> Result<()> {
    let text = explained("main = broadcast", &[])?;
    ensure!(text.contains("of the kernel: no\n"), "{text}");
    ensure!(text.contains("On the XDP engine: yes\n"), "{text}");
    ensure!(text.contains("go to several members"), "{text}");
    ensure!(!text.contains("the packet, decided"), "{text}");
    let text = explained("main = steer_flow", &[])?;
    ensure!(text.contains("of the kernel: yes\n"), "{text}");
    Ok(())
}

#[test]
fn bytecode_is_shown_where_it_is_asked_for() -> Result<()> {
    let text = explained("main = steer_to 1", &["--bytecode"])?;
    ensure!(text.contains(": exit"), "{text}");
    ensure!(!explained("main = steer_to 1", &[])?.contains(": exit"));
    Ok(())
}

#[test]
#[ignore = "needs root: eBPF"]
fn cost_is_measured_where_programs_may_be_loaded() -> Result<()> {
    let text = explained("main = tcp >-> steer_flow", &[])?;
    let measured = text
        .lines()
        .filter(|line| line.contains("ns for TCP over IPv4"));
    // Four things are measured: the group's BPF program, the filter, the BPF program on XDP, and
    // the evaluator.
    assert_eq!(measured.count(), 4, "{text}");
    ensure!(text.contains(" verified"), "{text}");
    Ok(())
}

#[test]
fn wrong_programs_are_shown_with_their_place() -> Result<()> {
    let wrong = complaint(&["explain", "-e", "main = tcp >-> steer_flwo"])?;
    ensure!(
        wrong.contains("steer_flow") && wrong.contains('^'),
        "{wrong}"
    );
    assert_eq!(lang(&["explain"])?.status.code(), Some(2));
    Ok(())
}
