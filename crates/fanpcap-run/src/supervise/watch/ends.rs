//! Handles copies that end, and copies that do not capture in the group.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use anyhow::Result;

use super::{Watch, YOUNG};
use crate::copy::End;
use crate::founding;
use crate::open_captures;

impl Watch<'_> {
    /// Notes which copies have ended.
    ///
    /// # Errors
    /// waitpid(2) failed.
    pub(super) fn reap(&mut self) -> Result<()> {
        let (stopped, forwarded) = (self.stopped.is_some(), self.forwarded.clone());
        let told = |status: ExitStatus| {
            let by = status.signal();
            stopped || by.is_some_and(|signal| forwarded.contains_key(&signal))
        };
        let mut ends = Vec::new();
        for number in 0..self.copies.len() {
            let again = self.run.arguments.restart && !stopped;
            let copy = &mut self.copies[number];
            let pid = copy.pid();
            let lost = || self.ledger.lost_devices(number);
            let Some(end) = copy.end(told, again, lost)? else {
                continue;
            };
            if let Some(pid) = pid {
                self.orphans.end(number, pid);
            }
            ends.push((number, end));
        }
        // A message about one copy says whether others continue, so all ends must be known before.
        for (number, end) in ends {
            self.note(number, end);
        }
        Ok(())
    }

    fn note(&mut self, number: usize, end: End) {
        // Settle the copy's members first: the kernel still gives packets to them.
        self.ledger.settle(true);
        let copy = &mut self.copies[number];
        let never_joined = self.ledger.members(number) == copy.members_before;
        if never_joined && !(copy.questioned && end.status.success()) {
            // A copy that was examined had run for some seconds without a member, so it may have
            // captured where the ledger sees no member.
            self.ledger.never_joined(number, !copy.questioned);
        }
        // Mark a copy that ran long enough to join, even if it ended before this command examined
        // it: `has_none_joined` needs the mark.
        copy.questioned |= copy.age() >= YOUNG;
        let copy = &self.copies[number];
        if copy.given_up {
            self.say(&format!(
                "copy {number} ends again and again ({}): it is not started any more",
                end.status
            ));
        } else if copy.awaits_devices() {
            let devices: Vec<&str> = copy.awaited().collect();
            let devices = devices.join(", ");
            self.say(&format!(
                "copy {number} ended ({}), because a device is gone; it is started again when {devices} is up",
                end.status
            ));
        } else if end.again {
            self.say(&format!(
                "copy {number} ended ({}); it is started again",
                end.status
            ));
        } else if let Some(devices) = self.lost_devices(number).filter(|_| !end.told) {
            // The other copies on the device end too, perhaps a moment later.
            self.say(&format!(
                "copy {number} ended ({}), because a device is gone",
                end.status
            ));
            self.say_how_to_go_on(&devices);
        } else if !end.told && self.copies.iter().any(|copy| !copy.is_done()) {
            self.say(&format!(
                "copy {number} ended ({}); the other copies continue",
                end.status
            ));
        }
        let code = if self.copies[number].given_up {
            end.code().max(1)
        } else {
            end.code()
        };
        if !end.again && code != 0 {
            let failure = if end.told {
                &mut self.failures.when_told
            } else {
                &mut self.failures.own
            };
            failure.get_or_insert(code);
        }
    }

    /// The devices of a copy if one of them is gone.
    fn lost_devices(&mut self, number: usize) -> Option<Vec<String>> {
        let devices = self.ledger.lost_devices(number);
        (!devices.is_empty()).then(|| devices.into_iter().collect())
    }

    /// Prints, once, how the capture can go on when the copies' devices are back.
    fn say_how_to_go_on(&mut self, devices: &[String]) {
        if std::mem::replace(&mut self.has_said_gone, true) {
            return;
        }
        let (group, fanout) = (self.run.group, self.run.fanout.variable(0));
        let waits = |device: &String| {
            let plan = founding::explained(group, device, fanout).map(|it| it.plan);
            plan.is_some_and(|plan| plan.is_ok_and(|plan| plan.waits_if_gone.is_some()))
        };
        let is_waiting = devices.iter().any(waits);
        self.say(&how_to_go_on(devices, is_waiting));
    }

    /// Restarts the copies that are due.
    pub(super) fn start_again(&mut self) {
        for number in 0..self.copies.len() {
            let is_first = self.copies[number].starts == 0;
            // Processes that the copy left behind must end before its next start.
            if is_first || !self.copies[number].is_due() || self.orphans.has_groups() {
                continue;
            }
            let kept = self.copies[number].files.keep();
            if let Err(error) = kept.and_then(|_| self.start(number)) {
                self.copies[number].stay_down();
                self.failures.own.get_or_insert(1);
                self.say(&format!("copy {number} can't be started again: {error:#}"));
            }
        }
    }

    /// For each copy that has not joined, prints the likely reason: once after each start of the
    /// copy. Also prints which capture files of the copy its arguments do not name.
    pub(super) fn question(&mut self) {
        if self.stopped.is_some() {
            return;
        }
        for number in 0..self.copies.len() {
            let copy = &mut self.copies[number];
            let Some(pid) = copy
                .pid()
                .filter(|_| !copy.questioned && copy.age() >= YOUNG)
            else {
                continue;
            };
            copy.questioned = true;
            let arguments = self.run.arguments;
            if arguments.restart || arguments.merge.is_some() {
                for path in open_captures::of(pid, &copy.files) {
                    self.run.output.say(&format!(
                        "copy {} writes {}, which the arguments do not name with %i: a restart does not keep this file, and --merge does not include it",
                        copy.number,
                        path.display()
                    ));
                }
            }
            if self.ledger.members(copy.number) == copy.members_before {
                let matter = self.reason(pid, false);
                self.say(&format!("copy {number} has not joined the group: {matter}"));
            }
        }
    }
}

/// How copies that have lost their devices can go on. `are_waiting` says that the settings tell
/// them to wait for a device, which they could not do.
fn how_to_go_on(devices: &[String], are_waiting: bool) -> String {
    let names = devices.join(", ");
    let restart = format!("'fanpcap run --restart' starts the copies again when {names} is up");
    match devices {
        // A handle on several devices can't wait.
        [device] if !are_waiting => format!(
            "{restart}; with 'gone@{device} = wait' in pcap.conf, or PCAP_GONE=wait, they do not end (tcpdump needs -Z root)"
        ),
        _ => restart,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_set_is_proposed() {
        let said = |devices: &[&str], are_waiting| {
            let devices: Vec<String> = devices.iter().map(ToString::to_string).collect();
            how_to_go_on(&devices, are_waiting)
        };
        let restart = "'fanpcap run --restart' starts the copies again when eth0 is up";
        assert_eq!(said(&["eth0"], true), restart);
        let both = said(&["eth0"], false);
        assert!(
            both.starts_with(&format!("{restart}; with 'gone@eth0 = wait'")),
            "{both}"
        );
        let several = said(&["eth0", "eth1"], false);
        assert!(several.ends_with("when eth0, eth1 is up"), "{several}");
    }
}
