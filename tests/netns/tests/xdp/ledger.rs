//! The ledger of a group counts each packet that reached the group, whether or not a member gets
//! the packet.

use anyhow::{Context, Result};
use fanpcap_group::view::GroupTable;
use fanpcap_linux::interface;
use fanpcap_netns::remains::on_wire_that_ends_clean;
use fanpcap_netns::{DEVICE, wait_for_shares};
use fanpcap_testkit::await_for::LIMIT;
use fanpcap_testkit::{await_for, traffic};

use crate::scene::{start_as, tcpdump};

const GROUP: u16 = 7;

#[test]
#[ignore = "needs root: run by make test"]
fn it_is_told_where_the_first_member_gets_nothing() -> Result<()> {
    all_is_told("main = steer_to 1")
}

#[test]
#[ignore = "needs root: run by make test"]
fn it_is_told_where_nobody_gets_anything() -> Result<()> {
    all_is_told("main = icmp >-> steer_flow")
}

fn all_is_told(program: &str) -> Result<()> {
    on_wire_that_ends_clean(1, |wire| {
        let start = |_| start_as(wire, tcpdump(wire)?.group(GROUP, program));
        let members = (0..2).map(start).collect::<Result<Vec<_>>>()?;
        wait_for_shares()?;
        let frames = traffic::frames(1, &traffic::flows(1, 20), 0..2000)?;
        wire.send_as_tap(&frames)?;
        let ifindex = interface::index(DEVICE).context("the device")?;
        let table = GroupTable::find(ifindex, GROUP, LIMIT).map_err(anyhow::Error::msg)?;
        let table = table.context("no table")?;
        let mut said = String::new();
        let told = await_for("all frames to be in the ledger", LIMIT, || {
            let ledger = table.look().and_then(|view| view.ledger);
            said = format!("{ledger:?}");
            let offered = ledger.map(|it| it.offered);
            Ok((offered == Some(frames.len() as u64)).then_some(()))
        });
        told.with_context(|| said.clone())?;
        members.into_iter().try_for_each(|it| it.stop().map(drop))
    })
}
