//! Calls that etcd answers: keys, transactions and leases.

use std::slice;
use std::time::Duration;

use anyhow::{Result, ensure};
use fanpcap_etcd::{CallError, Client, Compare, Keys, Operation, Settings};
use fanpcap_testkit::{Etcd, netns};

/// A client of all members.
pub(crate) fn client(etcd: &Etcd) -> Result<Client> {
    Ok(Client::new(&settings(etcd)?)?)
}

/// A client's settings for all members.
pub(crate) fn settings(etcd: &Etcd) -> Result<Settings> {
    let endpoints = etcd.endpoints();
    let endpoints = endpoints.iter().map(|text| text.parse());
    Ok(Settings {
        endpoints: endpoints.collect::<Result<_, _>>()?,
        ..Settings::default()
    })
}

/// Changes without conditions. Only tests make such changes.
pub(crate) trait Unconditional {
    /// Stores a value. The key is put under `lease`, if `lease` is not 0. Returns the revision.
    fn put(&self, key: &[u8], value: &[u8], lease: i64) -> Result<i64, CallError>;

    /// Removes keys. Returns the revision.
    fn delete(&self, keys: &Keys) -> Result<i64, CallError>;
}

impl Unconditional for Client {
    fn put(&self, key: &[u8], value: &[u8], lease: i64) -> Result<i64, CallError> {
        let put = Operation::Put {
            key: key.to_vec(),
            value: value.to_vec(),
            lease,
        };
        Ok(self.txn(&[], &[put], &[])?.revision)
    }

    fn delete(&self, keys: &Keys) -> Result<i64, CallError> {
        let delete = Operation::Delete(keys.clone());
        Ok(self.txn(&[], &[delete], &[])?.revision)
    }
}

fn put(key: &[u8], value: &[u8]) -> Operation {
    Operation::Put {
        key: key.to_vec(),
        value: value.to_vec(),
        lease: 0,
    }
}

#[test]
#[ignore = "needs root: a network namespace"]
fn keys_are_put_read_and_deleted() -> Result<()> {
    netns::within_new(|| {
        let etcd = Etcd::start(1, &[])?;
        let client = client(&etcd)?;
        let bytes: Vec<u8> = (0..=255).collect();
        let first = client.put(b"/a/1", &bytes, 0)?;
        let second = client.put(b"/a/2", b"", 0)?;
        client.put(b"/b", b"x", 0)?;
        ensure!(second > first);
        let found = client.range(&Keys::Prefix(b"/a/".to_vec()))?;
        ensure!(found.revision == second + 1 && found.kvs.len() == 2);
        ensure!(found.kvs[0].value == bytes && found.kvs[0].mod_revision == first);
        ensure!(found.kvs[1].key == b"/a/2" && found.kvs[1].value.is_empty());
        ensure!(etcd.ctl(&["get", "/b", "--print-value-only"])? == "x\n");
        client.delete(&Keys::Prefix(b"/a/".to_vec()))?;
        ensure!(client.range(&Keys::Prefix(b"/a/".to_vec()))?.kvs.is_empty());
        ensure!(client.range(&Keys::One(b"/b".to_vec()))?.kvs.len() == 1);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn a_transaction_does_one_or_the_other() -> Result<()> {
    netns::within_new(|| {
        let etcd = Etcd::start(1, &[])?;
        let client = client(&etcd)?;
        let key = b"/topology";
        let absent = Compare::CreateRevision(key.to_vec(), 0);
        let read = [Operation::Get(Keys::One(key.to_vec()))];
        let made = client.txn(slice::from_ref(&absent), &[put(key, b"1")], &read)?;
        ensure!(made.succeeded && made.ranges.is_empty());
        let again = client.txn(&[absent], &[put(key, b"2")], &read)?;
        ensure!(!again.succeeded && again.ranges[0].kvs[0].value == b"1");
        ensure!(again.ranges[0].kvs[0].mod_revision == made.revision);
        let known = Compare::ModRevision(key.to_vec(), made.revision);
        let created = Compare::CreateRevision(key.to_vec(), made.revision);
        let next = client.txn(&[known.clone(), created], &[put(key, b"2")], &read)?;
        ensure!(next.succeeded && next.revision > made.revision);
        ensure!(!client.txn(&[known], &[put(key, b"3")], &[])?.succeeded);
        Ok(())
    })
}

#[test]
#[ignore = "needs root: a network namespace"]
fn a_lease_ends_with_its_keys_unless_it_is_kept() -> Result<()> {
    netns::within_new(|| {
        let etcd = Etcd::start(1, &[])?;
        let client = client(&etcd)?;
        let lease = client.grant(Duration::from_secs(2))?;
        client.put(b"/node", b"x", lease)?;
        for _ in 0..4 {
            std::thread::sleep(Duration::from_secs(1));
            ensure!(client.keep_alive(lease)?);
        }
        let found = client.range(&Keys::One(b"/node".to_vec()))?;
        ensure!(found.kvs[0].lease == lease);
        client.revoke(lease)?;
        client.revoke(lease)?;
        ensure!(!client.keep_alive(lease)?);
        ensure!(client.range(&Keys::One(b"/node".to_vec()))?.kvs.is_empty());
        Ok(())
    })
}
