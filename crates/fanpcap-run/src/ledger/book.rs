//! What a supervisor of copies asks of a ledger, whoever gives the copies their packets.

use std::collections::BTreeSet;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use fanpcap_group::founder::Founder;

use super::{Absent, Account, AtPoller, First, Ledger, Left};

/// The ledger of one group. [`Ledger`] is that of a group that the kernel lists,
/// [`super::PolledLedger`] that of a group of a poller.
pub(crate) trait Book {
    /// See [`Ledger::founder`].
    fn founder(&self) -> Option<&Founder> {
        None
    }

    /// See [`Ledger::found`].
    fn found(&mut self, _: Option<Arc<Founder>>) {}

    /// Notes the process of a copy that was started.
    fn started(&mut self, pid: u32, copy: usize);

    /// See [`Ledger::fds`].
    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    /// See [`Ledger::take_complaint`].
    fn take_complaint(&mut self) -> Option<String>;

    /// See [`Ledger::scan`].
    fn scan(&mut self, copies: &[(u32, usize)]);

    /// See [`Ledger::settle`].
    fn settle(&mut self, all: bool);

    /// See [`Ledger::end_of_watch`].
    fn end_of_watch(&mut self);

    /// See [`Ledger::absent`].
    fn absent(&self) -> Absent;

    /// See [`Ledger::close`].
    fn close(&mut self);

    /// See [`Ledger::has_members`].
    fn has_members(&self, copy: usize) -> bool;

    /// See [`Ledger::had_no_members`].
    fn had_no_members(&self) -> bool;

    /// See [`Ledger::first`].
    fn first(&mut self) -> Option<First>;

    /// See [`Ledger::devices`].
    fn devices(&self) -> BTreeSet<u32>;

    /// See [`Ledger::lost_devices`].
    fn lost_devices(&mut self, copy: usize) -> BTreeSet<String>;

    /// See [`Ledger::stolen`].
    fn stolen(&self) -> BTreeSet<u32> {
        BTreeSet::new()
    }

    /// See [`Ledger::is_pressed`].
    fn is_pressed(&self) -> bool {
        false
    }

    /// See [`Ledger::members`].
    fn members(&self, copy: usize) -> usize;

    /// See [`Ledger::account`].
    fn account(&self, copy: usize) -> Account;

    /// See [`Ledger::has_share`].
    fn has_share(&self, copy: usize) -> bool;

    /// See [`Ledger::without_share`].
    fn without_share(&self) -> Vec<usize>;

    /// See [`Ledger::nowhere`].
    fn nowhere(&self) -> Option<u64>;

    /// See [`Ledger::ceiling`].
    fn ceiling(&self, _: &[Account]) -> Option<u64> {
        None
    }

    /// See [`Ledger::never_joined`].
    fn never_joined(&mut self, _: usize, _: bool) {}

    /// See [`Ledger::stop`].
    fn stop(&mut self);

    /// See [`Ledger::stop_newcomers`].
    fn stop_newcomers(&mut self);

    /// See [`Ledger::awaits_newcomers`].
    fn awaits_newcomers(&self) -> bool {
        false
    }

    /// See [`Ledger::has_stopped`].
    fn has_stopped(&self) -> bool;

    /// See [`Ledger::has_unstopped`].
    fn has_unstopped(&self) -> bool;

    /// See [`Ledger::left`].
    fn left(&mut self) -> Vec<Left>;

    /// Packets that only the copies' poller counts; `None` without a poller.
    fn at_poller(&self) -> Option<AtPoller> {
        None
    }
}

impl Book for Ledger {
    fn founder(&self) -> Option<&Founder> {
        Self::founder(self)
    }

    fn found(&mut self, founder: Option<Arc<Founder>>) {
        Self::found(self, founder);
    }

    fn started(&mut self, pid: u32, copy: usize) {
        Self::started(self, pid, copy);
    }

    fn fds(&self) -> Vec<BorrowedFd<'_>> {
        Self::fds(self)
    }

    fn take_complaint(&mut self) -> Option<String> {
        Self::take_complaint(self)
    }

    fn scan(&mut self, copies: &[(u32, usize)]) {
        Self::scan(self, copies);
    }

    fn settle(&mut self, all: bool) {
        Self::settle(self, all);
    }

    fn end_of_watch(&mut self) {
        Self::end_of_watch(self);
    }

    fn absent(&self) -> Absent {
        Self::absent(self)
    }

    fn close(&mut self) {
        Self::close(self);
    }

    fn has_members(&self, copy: usize) -> bool {
        Self::has_members(self, copy)
    }

    fn had_no_members(&self) -> bool {
        Self::had_no_members(self)
    }

    fn first(&mut self) -> Option<First> {
        let (copy, record) = Self::first(self)?;
        Some(First::Page(copy, Box::new(record)))
    }

    fn devices(&self) -> BTreeSet<u32> {
        Self::devices(self)
    }

    fn lost_devices(&mut self, copy: usize) -> BTreeSet<String> {
        Self::lost_devices(self, copy)
    }

    fn stolen(&self) -> BTreeSet<u32> {
        Self::stolen(self)
    }

    fn is_pressed(&self) -> bool {
        Self::is_pressed(self)
    }

    fn members(&self, copy: usize) -> usize {
        Self::members(self, copy)
    }

    fn account(&self, copy: usize) -> Account {
        Self::account(self, copy)
    }

    fn has_share(&self, copy: usize) -> bool {
        Self::has_share(self, copy)
    }

    fn without_share(&self) -> Vec<usize> {
        Self::without_share(self)
    }

    fn nowhere(&self) -> Option<u64> {
        Self::nowhere(self)
    }

    fn ceiling(&self, accounts: &[Account]) -> Option<u64> {
        Self::ceiling(self, accounts)
    }

    fn never_joined(&mut self, copy: usize, is_sure: bool) {
        Self::never_joined(self, copy, is_sure);
    }

    fn stop(&mut self) {
        Self::stop(self);
    }

    fn stop_newcomers(&mut self) {
        Self::stop_newcomers(self);
    }

    fn awaits_newcomers(&self) -> bool {
        Self::awaits_newcomers(self)
    }

    fn has_stopped(&self) -> bool {
        Self::has_stopped(self)
    }

    fn has_unstopped(&self) -> bool {
        Self::has_unstopped(self)
    }

    fn left(&mut self) -> Vec<Left> {
        Self::left(self)
    }
}
