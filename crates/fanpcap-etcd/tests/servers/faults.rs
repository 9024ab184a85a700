//! Members of etcd that are dead, stopped, or without a majority.

use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use fanpcap_etcd::{Client, Failure, Keys, Replaced};
use fanpcap_testkit::{Etcd, netns};

use crate::calls::{Unconditional as _, client, settings};

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
fn a_stopped_member_costs_one_attempt_and_undoes_nothing() -> Result<()> {
    netns::within_new(|| {
        let etcd = Etcd::start(3, &[])?;
        let follower = (etcd.leader()? + 1) % 3;
        // The client keeps using the endpoint that answered last. So this must be the member that
        // will be stopped.
        let mut settings = settings(&etcd)?;
        settings.endpoints.rotate_left(follower);
        let client = Client::new(&settings)?;
        let mut revision = stored(client.replace(b"/k", b"1", 0, 0)?)?;
        etcd.signal(follower, "STOP")?;
        let begun = Instant::now();
        for round in 2..20 {
            let value = round.to_string();
            revision = stored(client.replace(b"/k", value.as_bytes(), 0, revision)?)?;
            if round == 2 {
                let first = begun.elapsed();
                ensure!(first >= settings.limits.attempt.mul_f32(0.9), "{first:?}");
            }
        }
        ensure!(begun.elapsed() < Duration::from_secs(3));
        // When the member continues, it executes the calls that came while it was stopped.
        etcd.signal(follower, "CONT")?;
        etcd.await_leader()?;
        sleep(Duration::from_millis(500));
        ensure!(client.range(&Keys::One(b"/k".to_vec()))?.kvs[0].value == b"19");
        Ok(())
    })
}

/// The revision at which a value was stored.
fn stored(replaced: Replaced) -> Result<i64> {
    match replaced {
        Replaced::Stored(revision) => Ok(revision),
        Replaced::Other(other) => bail!("etcd has {other:?}"),
    }
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
        ensure!(refused.is_err_and(|error| error.failure == Failure::Unreachable));
        ensure!(begun.elapsed() < client.limits().call + Duration::from_secs(2));
        etcd.restart(0)?;
        etcd.restart(1)?;
        etcd.await_leader()?;
        client.put(b"/k", b"3", 0)?;
        Ok(())
    })
}
