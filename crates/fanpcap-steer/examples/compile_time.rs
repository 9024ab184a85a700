//! How long the compiler takes: `cargo run --release -p fanpcap-steer --example compile_time`.

use std::hint::black_box;
use std::time::Instant;

const RUNS: usize = 2000;

/// A program of 50 lines, which are these in turn.
fn program(lines: &[&str]) -> String {
    let lines: String = lines.iter().cycle().take(46).copied().collect();
    format!(
        "web = filter (has_port 80 .||. has_port 443)\n\nmain = do\n{lines}    inner steer_flow\n"
    )
}

fn main() -> Result<(), fanpcap_steer::Error> {
    let short = program(&["    when is_icmp (inc 2)\n", "    no_frag\n", "    inc 1\n"]);
    let long = program(&[
        "    when (has_port 53 .||. has_addr \"192.168.0.0/16\") (inc 1)\n",
        "    unless is_frag (conditional (ip_ttl .< 64) (inc 2) (inc 3))\n",
        "    par3 (web >-> tcp) (filter (is_udp .&&. not is_multicast)) unit\n",
        "    vlan_id_filter [0, 1, 13, 42..45]\n",
    ]);
    for (name, source) in [
        ("1 line", "main = tcp >-> steer_flow"),
        ("50 short lines", &short),
        ("50 long lines", &long),
    ] {
        let mut times = Vec::with_capacity(RUNS);
        for _ in 0..RUNS {
            let begin = Instant::now();
            black_box(fanpcap_steer::tree(black_box(source), &|_| Ok(Vec::new()))?);
            times.push(begin.elapsed());
        }
        let first = times[0];
        times.sort_unstable();
        println!(
            "{name}: median {:?}, slowest of 100 {:?}, first {first:?}",
            times[RUNS / 2],
            times[RUNS - RUNS / 100]
        );
    }
    Ok(())
}
