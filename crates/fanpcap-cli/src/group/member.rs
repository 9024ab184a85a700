//! Finds the member of a group that the user names.

use anyhow::{Result, bail};

use fanpcap_config::mode::WEIGHT_MAX;
use fanpcap_group::view::name_digest;

use super::shown::{self, Slot};
use super::text;

/// Parses the value of --weigh, `MEMBER=N`.
pub(super) fn weighed(text: &str) -> Result<(String, u16), String> {
    let split = text.rsplit_once('=');
    let weight = split.and_then(|(_, weight)| weight.parse().ok());
    let weight = weight.filter(|weight| *weight <= WEIGHT_MAX);
    match (split, weight) {
        (Some(_), Some(0)) => Err("weight 0 is for --drain".to_owned()),
        (Some((member, _)), Some(weight)) => Ok((member.to_owned(), weight)),
        _ => Err(format!(
            "write a member, '=' and a number from 1 to {WEIGHT_MAX}"
        )),
    }
}

/// The member that `which` names: by its pid, `slot:N`, `socket:N`, its program, or its name
/// (`PCAP_MEMBER`).
///
/// # Errors
/// `which` names no member, or several.
pub(super) fn find<'a>(slots: &'a [Slot], which: &str) -> Result<&'a Slot> {
    let members: Vec<&Slot> = slots.iter().filter(|it| it.is_member).collect();
    let found: Vec<&Slot> = members
        .iter()
        .copied()
        .filter(|it| is_it(it, which))
        .collect();
    let list = |slots: &[&Slot]| {
        let names = slots.iter().map(|it| text::name(it));
        names.collect::<Vec<_>>().join(", ")
    };
    match found.as_slice() {
        [one] => Ok(one),
        [] if members.is_empty() => bail!("no member '{which}': the group has no member yet"),
        [] => bail!("no member '{which}'; there are {}", list(&members)),
        several => bail!(
            "'{which}' is several members: {}; name one by 'slot:N'",
            list(several)
        ),
    }
}

fn is_it(member: &Slot, which: &str) -> bool {
    let is_number = |own: Option<u64>, text: &str| own.is_some() && text.parse().ok() == own;
    match which.split_once(':') {
        Some(("slot", number)) => is_number(member.slot.map(u64::from), number),
        Some(("socket", number)) => is_number(Some(member.socket), number),
        _ => {
            is_number(member.pid.map(u64::from), which)
                || member.program.as_deref() == Some(which)
                || member.name.as_deref() == Some(shown::digits(name_digest(which)).as_str())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slot(number: u8, pid: u32, program: &str, is_member: bool) -> Slot {
        Slot {
            slot: Some(number),
            socket: 100 + u64::from(number),
            pid: Some(pid),
            program: Some(program.to_owned()),
            is_member,
            ..Slot::default()
        }
    }

    #[test]
    fn weights_have_the_range_of_the_option_weight() {
        assert_eq!(weighed("a=b=1000"), Ok(("a=b".to_owned(), 1000)));
        for text in ["a", "a=", "a=1001", "a=-1", "a=x"] {
            assert!(
                weighed(text).unwrap_err().ends_with("from 1 to 1000"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_member_is_meant_by_pid_slot_socket_or_program() {
        let slots = [
            slot(0, 11, "tcpdump", true),
            slot(1, 12, "suricata", true),
            slot(2, 13, "suricata", false),
            slot(3, 11, "tcpdump", true),
        ];
        let found = |which| find(&slots, which).map(|it| it.slot);
        for which in ["12", "slot:1", "socket:101", "suricata"] {
            assert_eq!(found(which).unwrap(), Some(1), "{which}");
        }
        for (which, why) in [
            (
                "13",
                "no member '13'; there are 11 tcpdump (slot 0), 12 suricata (slot 1), 11 tcpdump (slot 3)",
            ),
            (
                "11",
                "'11' is several members: 11 tcpdump (slot 0), 11 tcpdump (slot 3); name one by 'slot:N'",
            ),
            ("slot:2", "no member"),
            ("slot:x", "no member"),
            ("", "no member"),
        ] {
            let error = found(which).unwrap_err().to_string();
            assert!(error.starts_with(why), "{error}");
        }
    }

    #[test]
    fn a_member_is_meant_by_its_name() {
        let mut named = slot(1, 12, "tcpdump", true);
        named.name = Some(shown::digits(name_digest("left")));
        let slots = [slot(0, 11, "tcpdump", true), named];
        assert_eq!(find(&slots, "left").unwrap().slot, Some(1));
        assert!(find(&slots, "right").is_err());
    }

    #[test]
    fn a_weight_follows_the_last_sign() {
        assert_eq!(weighed("a=b=3"), Ok(("a=b".to_owned(), 3)));
        for wrong in ["3", "a=", "a=0", "a=65536", "a=-1"] {
            assert!(weighed(wrong).is_err(), "{wrong}");
        }
    }
}
