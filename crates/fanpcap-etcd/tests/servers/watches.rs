//! Keys that a client follows: events, members that stop answering, compactions, and restarts.

use std::slice;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fanpcap_etcd::{CallError, Client, Follower, Keys};
use fanpcap_testkit::await_for::{LIMIT, within};
use fanpcap_testkit::{Etcd, netns};

use crate::calls::{Unconditional as _, client, settings};

/// Waits until `follower` has `value` for `key`. Returns how long this took.
fn await_value(follower: &mut Follower, key: &[u8], value: &[u8]) -> Result<Duration> {
    let begun = Instant::now();
    while begun.elapsed() < LIMIT {
        if follower.copy().get(key).map(|kv| &kv.value[..]) == Some(value) {
            return Ok(begun.elapsed());
        }
        // An error means that etcd is out of reach. The loop then tries again.
        let _ = follower.wait();
    }
    anyhow::bail!("{} never came", String::from_utf8_lossy(value))
}

#[test]
#[ignore = "needs root: a network namespace"]
fn a_follower_has_each_change_within_milliseconds() -> Result<()> {
    netns::within_new(|| {
        let etcd = Etcd::start(3, &[])?;
        let client = client(&etcd)?;
        client.put(b"/p/old", b"1", 0)?;
        let other = Arc::new(Client::new(&settings(&etcd)?)?);
        let mut follower = Follower::new(other, Keys::Prefix(b"/p/".to_vec()));
        await_value(&mut follower, b"/p/old", b"1")?;
        let writes = thread::spawn(move || -> Result<Client, CallError> {
            for round in 0..50 {
                client.put(b"/p/k", format!("{round}").as_bytes(), 0)?;
                client.put(b"/elsewhere", b"x", 0)?;
            }
            client.delete(&Keys::One(b"/p/old".to_vec()))?;
            client.put(b"/p/last", b"x", 0)?;
            Ok(client)
        });
        let mut seen = 0;
        while !follower.copy().contains_key(b"/p/last".as_slice()) {
            seen += usize::from(follower.wait()?);
        }
        let client = writes.join().map_err(|_| anyhow::anyhow!("panic"))??;
        ensure!(seen >= 10, "{seen} messages");
        ensure!(follower.copy().len() == 2, "{:?}", follower.copy());
        let begun = Instant::now();
        client.put(b"/p/k", b"now", 0)?;
        await_value(&mut follower, b"/p/k", b"now")?;
        ensure!(begun.elapsed() < within(Duration::from_millis(500)));
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn a_stopped_member_does_not_silence_a_watch() -> Result<()> {
    netns::within_new(|| {
        let etcd = Etcd::start(3, &[])?;
        let stopped = (etcd.leader()? + 1) % 3;
        let mut at_it = settings(&etcd)?;
        at_it.endpoints.rotate_left(stopped);
        let mut writer = settings(&etcd)?;
        writer.endpoints.remove(stopped);
        let writer = Client::new(&writer)?;
        let mut follower = Follower::new(Arc::new(Client::new(&at_it)?), Keys::One(b"/k".to_vec()));
        writer.put(b"/k", b"1", 0)?;
        await_value(&mut follower, b"/k", b"1")?;
        writer.put(b"/k", b"2", 0)?;
        await_value(&mut follower, b"/k", b"2")?;
        etcd.signal(stopped, "STOP")?;
        writer.put(b"/k", b"3", 0)?;
        let waited = await_value(&mut follower, b"/k", b"3")?;
        etcd.signal(stopped, "CONT")?;
        let limits = writer.limits();
        println!("the watch went on after {waited:?}");
        let most = limits.quiet + limits.attempt + Duration::from_secs(2);
        ensure!(waited < within(most), "{waited:?}");
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn a_follower_survives_compaction_and_the_death_of_its_member() -> Result<()> {
    netns::within_new(|| {
        let mut etcd = Etcd::start(3, &[])?;
        let mut at_it = settings(&etcd)?;
        at_it.endpoints.rotate_left(2);
        let mut writer = settings(&etcd)?;
        writer.endpoints.remove(2);
        let writer = Client::new(&writer)?;
        let keys = Keys::Prefix(b"/p/".to_vec());
        let mut follower = Follower::new(Arc::new(Client::new(&at_it)?), keys);
        writer.put(b"/p/1", b"1", 0)?;
        writer.put(b"/p/2", b"1", 0)?;
        await_value(&mut follower, b"/p/2", b"1")?;
        // The member that serves the watch dies. Then keys change, and etcd compacts these changes.
        etcd.kill(2)?;
        etcd.await_leader_of(&[0, 1])?;
        writer.delete(&Keys::One(b"/p/1".to_vec()))?;
        let last = writer.put(b"/p/2", b"2", 0)?;
        let last = writer.put(b"/p/2", b"3", 0)?.max(last);
        etcd.ctl_of(&[0, 1], &["compact", &last.to_string()])?;
        await_value(&mut follower, b"/p/2", b"3")?;
        ensure!(follower.copy().len() == 1, "{:?}", follower.copy());
        writer.put(b"/p/2", b"4", 0)?;
        await_value(&mut follower, b"/p/2", b"4")?;
        // All members restart.
        etcd.kill(0)?;
        etcd.kill(1)?;
        ensure!((0..20).any(|_| follower.wait().is_err()));
        for index in 0..3 {
            etcd.restart(index)?;
        }
        etcd.await_leader()?;
        writer.put(b"/p/2", b"5", 0)?;
        await_value(&mut follower, b"/p/2", b"5")?;
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn the_oldest_candidate_leads_and_etcdctl_sees_it() -> Result<()> {
    netns::within_new(|| {
        let etcd = Etcd::start(1, &[])?;
        let client = client(&etcd)?;
        let keys = Keys::Prefix(b"/e/".to_vec());
        let first = client.grant(Duration::from_secs(5))?;
        let second = client.grant(Duration::from_secs(5))?;
        let one = client.stand("/e", first, b"one")?;
        let two = client.stand("/e", second, b"two")?;
        ensure!(client.stand("/e", first, b"one")? == one);
        let candidates = client.range(&keys)?.kvs;
        ensure!(one.leads(&candidates) && !two.leads(&candidates));
        let observed = etcd.observe("/e")?;
        ensure!(observed.contains("one"), "{observed}");
        client.revoke(first)?;
        let candidates = client.range(&keys)?.kvs;
        ensure!(two.leads(&candidates) && !one.leads(&candidates));
        let put = fanpcap_etcd::Operation::Put {
            key: b"/t".to_vec(),
            value: b"x".to_vec(),
            lease: 0,
        };
        ensure!(
            !client
                .txn(&[one.still_stands()], slice::from_ref(&put), &[])?
                .succeeded
        );
        ensure!(client.txn(&[two.still_stands()], &[put], &[])?.succeeded);
        client.range(&keys)?.kvs.first().context("a candidate")?;
        Ok(())
    })
}
