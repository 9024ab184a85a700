//! The contents of replies.

use super::super::fields::{Reader, Writer};
use super::super::{Malformed, NAME_MAX};
use super::{
    ENDED_MAX, EndedMember, MemberCounts, SeenGroup, SeenLedger, SeenRounds, SeenSlot, Watched,
};

impl SeenLedger {
    pub(super) fn words(&self) -> [u64; 10] {
        let Self {
            at_ns,
            offered,
            nowhere,
            no_member,
            produced,
            dropped,
            unwanted,
            no_time,
            stopped,
            not_allowed,
        } = *self;
        [
            at_ns,
            offered,
            nowhere,
            no_member,
            produced,
            dropped,
            unwanted,
            no_time,
            stopped,
            not_allowed,
        ]
    }

    pub(super) fn of(words: [u64; 10]) -> Self {
        let [
            at_ns,
            offered,
            nowhere,
            no_member,
            produced,
            dropped,
            unwanted,
            no_time,
            stopped,
            not_allowed,
        ] = words;
        Self {
            at_ns,
            offered,
            nowhere,
            no_member,
            produced,
            dropped,
            unwanted,
            no_time,
            stopped,
            not_allowed,
        }
    }
}

impl MemberCounts {
    pub(super) fn words(&self) -> [u64; 4] {
        [self.produced, self.dropped, self.taken, self.rejected]
    }

    pub(super) fn of([produced, dropped, taken, rejected]: [u64; 4]) -> Self {
        Self {
            produced,
            dropped,
            taken,
            rejected,
        }
    }
}

fn write_words(out: &mut Writer, words: &[u64]) {
    words.iter().for_each(|word| out.u64(*word));
}

fn read_words<const N: usize>(from: &mut Reader<'_>) -> Result<[u64; N], Malformed> {
    let mut words = [0; N];
    for word in &mut words {
        *word = from.u64("count")?;
    }
    Ok(words)
}

pub(super) fn write_group(out: &mut Writer, group: &SeenGroup) -> Result<(), Malformed> {
    out.u8(group.index);
    out.option(group.number.map(u32::from));
    out.u32(group.user);
    out.u32(group.ifindex);
    out.u64(group.pid_namespace);
    out.text("title", &group.title, NAME_MAX)?;
    write_words(out, &group.ledger.words());
    write_words(out, &group.source);
    write_words(out, &group.gone);
    write_words(out, &[group.takeovers, group.changes]);
    write_words(out, &group.moved);
    out.u8(group.rounds.is_some().into());
    if let Some(rounds) = &group.rounds {
        out.u8(rounds.moves_all.into());
        write_words(out, &[rounds.rounds, rounds.above]);
        out.u16(length(&rounds.elephants)?);
        for &(bucket, slot, part) in &rounds.elephants {
            out.u16(bucket);
            out.u8(slot);
            out.u16(part);
        }
    }
    out.u16(length(&group.slots)?);
    group.slots.iter().for_each(|slot| write_slot(out, slot));
    Ok(())
}

fn length<T>(all: &[T]) -> Result<u16, Malformed> {
    u16::try_from(all.len()).map_err(|_| Malformed::Field("length"))
}

pub(super) fn read_group(from: &mut Reader<'_>) -> Result<SeenGroup, Malformed> {
    let mut group = SeenGroup {
        index: from.u8("group")?,
        number: match from.option("group")? {
            Some(number) => Some(u16::try_from(number).map_err(|_| Malformed::Field("group"))?),
            None => None,
        },
        user: from.u32("user")?,
        ifindex: from.u32("device")?,
        pid_namespace: from.u64("namespace")?,
        title: from.text("title", NAME_MAX)?,
        ledger: SeenLedger::of(read_words(from)?),
        source: read_words(from)?,
        gone: read_words(from)?,
        ..SeenGroup::default()
    };
    [group.takeovers, group.changes] = read_words(from)?;
    group.moved = read_words(from)?;
    if from.flag("rounds")? {
        group.rounds = Some(read_rounds(from)?);
    }
    for _ in 0..from.u16("slots")? {
        group.slots.push(read_slot(from)?);
    }
    Ok(group)
}

fn read_rounds(from: &mut Reader<'_>) -> Result<SeenRounds, Malformed> {
    let moves_all = from.flag("rounds")?;
    let [rounds, above] = read_words(from)?;
    let mut elephants = Vec::new();
    for _ in 0..from.u16("elephants")? {
        let bucket = from.u16("elephant")?;
        elephants.push((bucket, from.u8("elephant")?, from.u16("elephant")?));
    }
    Ok(SeenRounds {
        moves_all,
        rounds,
        above,
        elephants,
    })
}

fn write_slot(out: &mut Writer, slot: &SeenSlot) {
    out.u8(slot.state);
    out.u64(slot.member);
    out.u32(slot.pid);
    out.u16(slot.buckets);
    out.u16(slot.weight);
    out.u8(slot.class);
    out.u64(slot.since_ns);
    out.option(slot.taker.map(u32::from));
    out.u64(slot.name);
    out.u32(slot.pool_bytes);
    out.u8(slot.wants_sent.into());
    out.u64(slot.joined_ns);
    write_words(out, &slot.counts.words());
    out.u64(slot.looked_ns);
}

fn read_slot(from: &mut Reader<'_>) -> Result<SeenSlot, Malformed> {
    Ok(SeenSlot {
        state: from.u8("state")?,
        member: from.u64("member")?,
        pid: from.u32("process")?,
        buckets: from.u16("buckets")?,
        weight: from.u16("weight")?,
        class: from.u8("class")?,
        since_ns: from.u64("time")?,
        taker: match from.option("taker")? {
            Some(taker) => Some(u8::try_from(taker).map_err(|_| Malformed::Field("taker"))?),
            None => None,
        },
        name: from.u64("name")?,
        pool_bytes: from.u32("pool")?,
        wants_sent: from.flag("direction")?,
        joined_ns: from.u64("time")?,
        counts: MemberCounts::of(read_words(from)?),
        looked_ns: from.u64("time")?,
    })
}

pub(super) fn write_watched(out: &mut Writer, watched: &Watched) -> Result<(), Malformed> {
    if watched.ended.len() > ENDED_MAX {
        return Err(Malformed::Field("ended"));
    }
    write_words(out, &watched.ledger.words());
    write_words(out, &[watched.absent, watched.forgotten]);
    write_words(out, &watched.source);
    out.u16(length(&watched.ended)?);
    for ended in &watched.ended {
        out.u64(ended.member);
        out.u32(ended.pid);
        write_words(out, &ended.counts.words());
        out.u64(ended.inherited);
    }
    Ok(())
}

pub(super) fn read_watched(from: &mut Reader<'_>) -> Result<Watched, Malformed> {
    let ledger = SeenLedger::of(read_words(from)?);
    let [absent, forgotten] = read_words(from)?;
    let mut watched = Watched {
        ledger,
        absent,
        forgotten,
        source: read_words(from)?,
        ended: Vec::new(),
    };
    let count = usize::from(from.u16("ended")?);
    if count > ENDED_MAX {
        return Err(Malformed::Field("ended"));
    }
    for _ in 0..count {
        watched.ended.push(EndedMember {
            member: from.u64("member")?,
            pid: from.u32("process")?,
            counts: MemberCounts::of(read_words(from)?),
            inherited: from.u64("count")?,
        });
    }
    Ok(watched)
}
