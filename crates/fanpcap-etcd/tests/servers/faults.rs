//! Members that are dead, stopped or without a majority.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use fanpcap_etcd::{CallError, Keys};
use fanpcap_testkit::{Etcd, netns};

use crate::calls::client;

#[test]
#[ignore = "needs root: a network namespace"]
fn one_dead_member_of_three_fails_no_call() -> Result<()> {
    netns::within_new(|| {
        let mut etcd = Etcd::start(3, &[])?;
        let client = client(&etcd)?;
        let leader = etcd.leader()?;
        let begun = Instant::now();
        for round in 0..100 {
            if round == 20 {
                etcd.kill(leader)?;
            }
            client.put(b"/k", format!("{round}").as_bytes(), 0)?;
        }
        ensure!(begun.elapsed() < Duration::from_secs(20));
        ensure!(client.range(&Keys::One(b"/k".to_vec()))?.kvs[0].value == b"99");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn a_stopped_member_costs_one_attempt() -> Result<()> {
    netns::within_new(|| {
        let etcd = Etcd::start(3, &[])?;
        let client = client(&etcd)?;
        let follower = (etcd.leader()? + 1) % 3;
        // The client stays with the endpoint that answered: it is put at the one that stops.
        let mut settings = crate::calls::settings(&etcd)?;
        settings.endpoints.rotate_left(follower);
        let at_it = fanpcap_etcd::Client::new(&settings)?;
        at_it.put(b"/k", b"1", 0)?;
        etcd.signal(follower, "STOP")?;
        let begun = Instant::now();
        at_it.put(b"/k", b"2", 0)?;
        let first = begun.elapsed();
        for _ in 0..20 {
            at_it.put(b"/k", b"3", 0)?;
        }
        ensure!(first >= Duration::from_millis(900), "{first:?}");
        ensure!(begun.elapsed() < Duration::from_secs(3));
        etcd.signal(follower, "CONT")?;
        ensure!(client.range(&Keys::One(b"/k".to_vec()))?.kvs[0].value == b"3");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn without_a_majority_a_call_ends_by_its_deadline() -> Result<()> {
    netns::within_new(|| {
        let mut etcd = Etcd::start(3, &[])?;
        let client = client(&etcd)?;
        client.put(b"/k", b"1", 0)?;
        etcd.kill(0)?;
        etcd.kill(1)?;
        let begun = Instant::now();
        let refused = client.put(b"/k", b"2", 0);
        ensure!(matches!(refused, Err(CallError::Unreachable { .. })));
        ensure!(begun.elapsed() < client.limits().call + Duration::from_secs(2));
        etcd.restart(0)?;
        etcd.restart(1)?;
        etcd.await_leader()?;
        client.put(b"/k", b"3", 0)?;
        Ok(())
    })
}
