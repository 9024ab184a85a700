//! Chosen schedules on each engine: members hang and go on, get other weights, and come and go in a
//! group in which flows stay at their member.

use anyhow::Result;
use fanpcap_testkit::dpdk;

use super::super::recorder::End;
use super::carry_out;
use super::engine::{DPDK, Engine};
use super::plan::Action;

/// A rate with which emulated machines keep up.
const RATE: &str = "20kpps";

const JOIN: Action = Action::Join { name: None };

fn end(member: usize, how: End) -> Vec<Action> {
    vec![Action::End { member, how }]
}

fn weigh(member: usize, weight: u16) -> Vec<Action> {
    vec![Action::Weigh { member, weight }]
}

/// Other members get the shares of two members that hang. One of these goes on, and has a share
/// again. The other one is killed, and another member reads what it has left.
fn members_hang(engine: Engine) -> Result<()> {
    let hang = [0, 2].map(|member| Action::Hang { member });
    let steps = vec![
        vec![JOIN; 4],
        hang.to_vec(),
        vec![Action::GoOn { member: 2 }],
        end(0, End::Killed),
    ];
    carry_out(engine, ("flow", RATE), steps)
}

/// Newcomers, members that go on, and members with a greater weight move no flow. Members that
/// leave, are killed, hang or are drained lose theirs, and no others move.
fn members_of_a_sticky_group_change(engine: Engine) -> Result<()> {
    let steps = vec![
        vec![JOIN; 3],
        vec![JOIN],
        end(0, End::Killed),
        vec![JOIN],
        vec![Action::Hang { member: 1 }],
        vec![Action::GoOn { member: 1 }],
        weigh(2, 3),
        weigh(2, 0),
        end(3, End::Leaves),
    ];
    carry_out(engine, ("flow+sticky", RATE), steps)
}

/// Members have shares by their weights, which change while they run.
fn members_get_other_weights(engine: Engine) -> Result<()> {
    let steps = vec![
        vec![JOIN; 3],
        weigh(1, 3),
        weigh(2, 0),
        vec![JOIN],
        [weigh(2, 2), weigh(1, 1)].concat(),
        end(1, End::Leaves),
    ];
    carry_out(engine, ("flow", RATE), steps)
}

const POLLED: [Engine; 2] = [Engine::Polled("packet"), Engine::Polled("afxdp")];

#[test]
#[ignore = "needs root: run by make test"]
fn members_that_hang_lose_their_shares_and_no_packet() -> Result<()> {
    members_hang(Engine::Tpacket)
}

#[test]
#[ignore = "needs root: run by make test"]
fn members_that_hang_at_a_poller_lose_their_shares_and_no_packet() -> Result<()> {
    POLLED.into_iter().try_for_each(members_hang)
}

#[test]
#[ignore = "needs root: run by make test"]
fn flows_of_a_sticky_group_at_a_poller_stay_where_they_are() -> Result<()> {
    POLLED
        .into_iter()
        .try_for_each(members_of_a_sticky_group_change)
}

#[test]
#[ignore = "needs root: run by make test"]
fn weights_of_members_at_a_poller_change_while_packets_come() -> Result<()> {
    POLLED.into_iter().try_for_each(members_get_other_weights)
}

#[test]
#[ignore = "needs root: run by make test"]
fn members_at_a_poller_of_dpdk_hang_are_sticky_and_get_other_weights() -> Result<()> {
    if !dpdk::is_here() {
        return Ok(());
    }
    members_hang(DPDK)?;
    members_of_a_sticky_group_change(DPDK)?;
    members_get_other_weights(DPDK)
}

mod long {
    use super::*;

    #[test]
    #[ignore = "needs root: run by make test-long"]
    fn members_that_hang_on_xdp_lose_their_shares_and_no_packet() -> Result<()> {
        members_hang(Engine::Xdp)
    }
}
