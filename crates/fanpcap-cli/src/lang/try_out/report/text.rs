//! The report as text.

use std::fmt;

use super::{Amount, Example, Member, OfDatagrams, OfFlows, Report};
use crate::lang::try_out::packets::few;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cut = if self.cut {
            ", and a part of one more"
        } else {
            ""
        };
        let Amount { packets, bytes } = self.read;
        writeln!(
            f,
            "{}: {packets} packets, {bytes} bytes{cut}",
            self.capture.display()
        )?;
        if let Some(why) = &self.not_in_group {
            writeln!(f, "a group of the kernel can't run the program: {why}")?;
        }
        self.table(f)?;
        self.others(f)?;
        self.flows.fmt(f)?;
        self.datagrams.fmt(f)?;
        for (counter, count) in &self.counters {
            writeln!(f, "counter {counter}: {count}")?;
        }
        for caveat in &self.caveats {
            writeln!(f, "note: {caveat}")?;
        }
        Ok(())
    }
}

impl Report {
    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<10}{:>12}{:>15}{:>9}{:>10}",
            "", "packets", "bytes", "share", "flows"
        )?;
        for (number, member) in self.members.iter().enumerate() {
            let Member {
                amount,
                share,
                flows,
            } = member;
            let name = format!("member {number}");
            let share = share.map_or_else(|| "-".to_owned(), |share| format!("{share:.2} %"));
            let Amount { packets, bytes } = amount;
            writeln!(f, "{name:<10}{packets:>12}{bytes:>15}{share:>9}{flows:>10}")?;
        }
        let Amount { packets, bytes } = self.dropped;
        writeln!(f, "{:<10}{packets:>12}{bytes:>15}", "dropped")?;
        if let Some(skew) = self.skew {
            writeln!(f, "skew x{skew:.2}")?;
        }
        Ok(())
    }

    /// Writes the effects that only few steering programs have.
    fn others(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.copies > 0 {
            let packets = self.copied.packets;
            writeln!(
                f,
                "copies: {packets} packets to more than one member, {} copies",
                self.copies
            )?;
        }
        for (class, packets) in &self.classes {
            writeln!(
                f,
                "class {class}: {packets} packets, but no member has this class"
            )?;
        }
        for (packets, whom) in [(self.host_too, "too"), (self.host_only, "only")] {
            if packets > 0 {
                writeln!(f, "host: {packets} packets go to it {whom}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for OfFlows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            total,
            split,
            apart,
            both_directions,
            ..
        } = self;
        writeln!(
            f,
            "flows: {total}, {split} split, {apart} with directions apart"
        )?;
        let symmetric = match self.symmetric {
            None => "no flow was seen in both directions",
            Some(true) => "symmetric: both directions of each flow go to the same member",
            Some(false) => "not symmetric",
        };
        writeln!(
            f,
            "directions: {both_directions} flows seen in both; {symmetric}"
        )?;
        if self.left_by_late > 0 {
            let left = self.left_by_late;
            writeln!(
                f,
                "late: {left} flows are whole except for datagrams of which a later fragment came first"
            )?;
        }
        if self.not_ip_packets > 0 {
            writeln!(f, "not IP: {} packets", self.not_ip_packets)?;
        }
        self.unread(f)?;
        for Example {
            flow,
            packets,
            members,
        } in &self.examples
        {
            let [one, other] = members.each_ref().map(|numbers| few(numbers));
            writeln!(f, "  {flow}: {packets} packets; ->: {one}; <-: {other}")?;
        }
        Ok(())
    }
}

impl OfFlows {
    fn unread(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.unread_packets.is_empty() {
            return Ok(());
        }
        let by = self.unread_packets.iter();
        let by: Vec<String> = by
            .map(|(carrier, count)| format!("{carrier} {count}"))
            .collect();
        let share = self.unread_share.unwrap_or_default();
        writeln!(
            f,
            "unread: {share:.2} % of the packets were steered by an outer header, because the packets inside can't be read: {}",
            by.join(", ")
        )
    }
}

impl fmt::Display for OfDatagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            total,
            split,
            late,
            late_fragments,
        } = self;
        if *total == 0 {
            return Ok(());
        }
        write!(
            f,
            "fragments: {total} datagrams, {split} split, {late} of which a later fragment came first"
        )?;
        writeln!(f, ", {late_fragments} fragments steered without their flow")
    }
}
