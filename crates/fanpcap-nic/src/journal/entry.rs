//! The text of a journal: its device, and each change with the old and the new value.

use crate::knob::Knob;
use std::fmt::Write as _;

/// A journal's content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    /// The device.
    pub about: About,
    /// The changes, oldest first.
    pub changes: Vec<Change>,
}

/// Identifies a device, because another device may get its interface index later.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The device's name.
    pub name: String,
    /// The hardware address.
    pub address: String,
    /// The driver's name.
    pub driver: String,
}

/// A change of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The setting.
    pub knob: Knob,
    /// The value before.
    pub old: String,
    /// The value that was set.
    pub new: String,
    /// The owners that want the change to stay. The change is undone when all of them are gone.
    pub owners: Vec<Owner>,
    /// Whether the change stays without owners, until the user asks for the old value.
    pub stays: bool,
    /// Values of other settings that the driver may drop with this change. They are put back
    /// together with the old value.
    pub lost: Vec<(Knob, String)>,
}

/// A process that wants a change to stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The number of the owner's lock.
    pub number: u32,
    /// The owner's process, for messages.
    pub pid: u32,
}

/// The first line. Journals of other versions are not read.
const HEAD: &str = "fanpcap journal 1";

/// Limits on the number of changes in a journal that is read, and on the number of owners of a
/// change.
const CHANGES_MAX: usize = 4096;
const OWNERS_MAX: usize = 1024;

impl Content {
    /// Reads a journal's text; `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        // A last line without a newline means that a write was cut off.
        let mut lines = text.strip_suffix('\n')?.split('\n');
        if lines.next()? != HEAD {
            return None;
        }
        let mut content = Self::default();
        let mut words = lines.next()?.split(' ');
        if words.next()? != "device" {
            return None;
        }
        let mut word = || words.next().and_then(value);
        let (name, address, driver) = (word()?, word()?, word()?);
        content.about = About {
            name,
            address,
            driver,
        };
        for line in lines {
            content.add(&mut line.split(' '))?;
        }
        Some(content)
    }

    fn add<'a>(&mut self, words: &mut impl Iterator<Item = &'a str>) -> Option<()> {
        let kind = words.next()?;
        let knob = Knob::parse(words.next()?)?;
        let old = value(words.next()?)?;
        match kind {
            "change" if self.changes.len() < CHANGES_MAX => {
                let mut change = Change {
                    knob,
                    old,
                    new: value(words.next()?)?,
                    owners: Vec::new(),
                    stays: false,
                    lost: Vec::new(),
                };
                for word in words {
                    change.add_owner(word)?;
                }
                self.changes.push(change);
            }
            "lost" => {
                let lost = &mut self.changes.last_mut()?.lost;
                lost.push((knob, old));
                if lost.len() > CHANGES_MAX || words.next().is_some() {
                    return None;
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// The text that [`Content::parse`] reads.
    pub fn text(&self) -> String {
        let About {
            name,
            address,
            driver,
        } = &self.about;
        let [name, address, driver] = [name, address, driver].map(|text| word(text));
        let mut text = format!("{HEAD}\ndevice {name} {address} {driver}\n");
        for change in &self.changes {
            let (old, new) = (word(&change.old), word(&change.new));
            // Writing to a String can't fail.
            let _ = write!(text, "change {} {old} {new}", change.knob);
            for owner in &change.owners {
                let _ = write!(text, " {}:{}", owner.number, owner.pid);
            }
            if change.stays {
                text.push_str(" stays");
            }
            text.push('\n');
            for (knob, value) in &change.lost {
                let _ = writeln!(text, "lost {knob} {}", word(value));
            }
        }
        text
    }
}

impl About {
    /// Whether both texts are about the same device: the same driver, and the same name or address.
    pub(super) fn is_of(&self, other: &Self) -> bool {
        let is_same = |one: &str, other: &str| word(one) == word(other);
        is_same(&self.driver, &other.driver)
            && (is_same(&self.name, &other.name) || is_same(&self.address, &other.address))
    }
}

impl Change {
    fn add_owner(&mut self, word: &str) -> Option<()> {
        if word == "stays" {
            self.stays = true;
            return Some(());
        }
        let (number, pid) = word.split_once(':')?;
        self.owners.push(Owner {
            number: number.parse().ok()?,
            pid: pid.parse().ok()?,
        });
        (self.owners.len() <= OWNERS_MAX).then_some(())
    }
}

/// The word that stands for an empty value in the text of a journal.
const EMPTY: &str = "-";

/// A value as one word. Replaces spaces and control characters, which only device names can
/// contain.
fn word(text: &str) -> String {
    match text {
        "" => EMPTY.to_owned(),
        _ => (text.chars())
            .map(|sign| if is_plain(sign) { sign } else { '?' })
            .collect(),
    }
}

fn value(word: &str) -> Option<String> {
    match word {
        EMPTY => Some(String::new()),
        _ => (!word.is_empty() && word.chars().all(is_plain)).then(|| word.to_owned()),
    }
}

fn is_plain(sign: char) -> bool {
    !sign.is_whitespace() && !sign.is_control()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knob::Setting;
    use proptest::prelude::*;

    const TEXT: &str = "fanpcap journal 1
device eth3 02:00:00:00:00:01 ixgbe
change table 0,1,2,3 0,1,0,1 stays
change channels combined=4 combined=2 1:4711 2:4712 stays
lost irq.41 0-7
lost rps.0 -
change napi.0 0-1 0 3:1
";

    #[test]
    fn a_journal_is_written_as_it_was_read() {
        let content = Content::parse(TEXT).unwrap();
        assert_eq!(content.changes.len(), 3);
        assert_eq!(content.changes[1].lost.len(), 2);
        assert_eq!(content.changes[1].owners[1].pid, 4712);
        assert_eq!(content.text(), TEXT);
    }

    #[test]
    fn what_is_cut_off_or_changed_is_not_read() {
        for len in 0..TEXT.len() {
            let read = Content::parse(&TEXT[..len]);
            assert!(read.is_none() || TEXT[..len].ends_with('\n'), "{len}");
        }
        for (from, to) in [
            ("journal 1", "journal 2"),
            ("change napi.0", "change napi.x"),
            ("lost irq.41", "lost irq"),
            ("3:1", "3"),
            ("lost rps.0 -", "lost rps.0 - -"),
            ("device", "lost"),
        ] {
            assert_eq!(Content::parse(&TEXT.replace(from, to)), None, "{to}");
        }
        // A line with a lost value must come after the line of its change.
        assert_eq!(
            Content::parse("fanpcap journal 1\ndevice a b c\nlost rings x\n"),
            None
        );
    }

    #[test]
    fn names_with_odd_characters_stay_one_word() {
        let mut content = Content::parse(TEXT).unwrap();
        content.about.name = "a\u{1}b\u{a0}c".to_owned();
        let again = Content::parse(&content.text()).unwrap();
        assert_eq!(again.about.name, "a?b?c");
    }

    fn knob() -> impl Strategy<Value = Knob> {
        prop_oneof![
            Just(Knob::Channels),
            any::<u32>().prop_map(Knob::Irq),
            "[!-~]{1,8}".prop_map(|name| Setting::Feature(name).into()),
        ]
    }

    fn change() -> impl Strategy<Value = Change> {
        let value = || "[ -~&&[^ ]]{2,12}|[a-z0-9]?";
        let owner = (any::<u32>(), any::<u32>()).prop_map(|(number, pid)| Owner { number, pid });
        let owners = proptest::collection::vec(owner, 0..3);
        let lost = proptest::collection::vec((knob(), value()), 0..3);
        (knob(), value(), value(), owners, any::<bool>(), lost).prop_map(
            |(knob, old, new, owners, stays, lost)| Change {
                knob,
                old,
                new,
                owners,
                stays,
                lost,
            },
        )
    }

    proptest! {
        #[test]
        fn any_journal_is_read_as_it_was_written(
            changes in proptest::collection::vec(change(), 0..5),
        ) {
            let about = About { name: "eth0".into(), address: String::new(), driver: "veth".into() };
            let content = Content { about, changes };
            prop_assert_eq!(Content::parse(&content.text()), Some(content));
        }

        #[test]
        fn no_text_makes_the_reader_panic(
            text in "(fanpcap journal 1\n)?(device [a-z -]{0,8}\n)?((change|lost)[ a-z0-9:.,=-]{0,20}\n){0,4}",
        ) {
            if let Some(content) = Content::parse(&text) {
                prop_assert_eq!(Content::parse(&content.text()), Some(content));
            }
        }
    }
}
