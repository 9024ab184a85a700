//! One pcap.conf on each engine: copies of an unmodified tcpdump in two groups capture the same
//! packets, whatever engine takes these from the device. The test writes the table of
//! docs/engines.md.
#![allow(clippy::print_stdout, reason = "tests print")]

mod truth;
mod engine;
mod copies;
mod table;

use anyhow::{Result, ensure};

use crate::engine::Engine;

/// Runs the page's pcap.conf on these engines. Compares the outcomes with that on packet sockets,
/// and with the page's table.
fn compare(engines: &[Engine]) -> Result<()> {
    let configuration = table::configuration()?;
    let first = copies::capture(Engine::Tpacket, &configuration)?;
    let mut rows = vec![table::row(Engine::Tpacket, &first, &first)?];
    for &engine in engines {
        let outcome = copies::capture(engine, &configuration)?;
        if engine.is_steered() {
            let moved = outcome.moved(&first);
            ensure!(moved == 0, "{moved} flows at other members on {engine:?}");
        }
        rows.push(table::row(engine, &outcome, &first)?);
    }
    table::check(&rows)
}

#[test]
#[ignore = "needs root: run by make test"]
fn one_configuration_shares_the_packets_in_the_same_way_on_each_engine() -> Result<()> {
    compare(&[Engine::Xdp, Engine::Packet, Engine::Afxdp])
}

#[test]
#[ignore = "needs root: run by make test"]
fn a_device_of_dpdk_is_no_exception() -> Result<()> {
    compare(&[Engine::Dpdk])
}

#[test]
#[ignore = "needs root: run by make test"]
fn stand_ins_for_modules_of_others_are_no_exception() -> Result<()> {
    compare(&[Engine::Netmap, Engine::Zc, Engine::Pfring])
}
