//! The frames and loops that the options of `fanpcap gen` describe.

use anyhow::{Result, bail};
use fanpcap_gen::{Description, Families, Lengths, Transports};

use super::options::Arguments;

impl Arguments {
    /// The number of loops; 0 means no limit.
    pub(super) fn loops(&self) -> u32 {
        let bounded = self.count.is_some() || self.seconds.is_some();
        let once = u32::from(self.replay.is_some() && !bounded);
        self.loops.unwrap_or(once)
    }

    /// The description of the frames.
    pub(super) fn description(&self) -> Result<Description> {
        let families = match (self.ipv4, self.ipv6) {
            (_, false) => Families::V4,
            (false, true) => Families::V6,
            (true, true) => Families::Both,
        };
        let transports = match (self.udp, self.tcp) {
            (_, false) => Transports::Udp,
            (false, true) => Transports::Tcp,
            (true, true) => Transports::Both,
        };
        if self.flows < needed(families, transports) {
            bail!(
                "--flows {}: this mix needs at least {} flows",
                self.flows,
                needed(families, transports)
            );
        }
        let lengths = if self.imix {
            Lengths::Imix
        } else {
            self.len.unwrap_or(Lengths::Fixed(60))
        };
        Ok(Description {
            seed: self.seed,
            flows: self.flows,
            lengths,
            families,
            transports,
            answers: self.both,
            vlans: self.vlan.clone(),
            vxlan: self.vxlan,
            fragments: self.fragments,
            source_mac: self.src_mac,
            destination_mac: self.dst_mac,
            sources4: self.src_ip,
            destinations4: self.dst_ip,
            sources6: self.src_ip6,
            destinations6: self.dst_ip6,
            destination_port: self.dst_port,
            stamp: !self.no_stamp,
        })
    }
}

/// The least number of flows with which a mix contains each kind of flow, such as TCP over IPv6.
fn needed(families: Families, transports: Transports) -> u32 {
    match (families, transports) {
        (Families::Both, Transports::Both) => 4,
        (Families::V4 | Families::V6, Transports::Both) => 3,
        (Families::Both, Transports::Udp | Transports::Tcp) => 2,
        (Families::V4 | Families::V6, Transports::Udp | Transports::Tcp) => 1,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        let words = std::iter::once("gen").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.arguments)
    }

    #[test]
    fn options_become_a_description() {
        let line = "-i x --imix -n 8 --ipv4 --ipv6 --tcp --both --vlan 5 --vlan 6 --vxlan 7 \
                    --fragments 9 --no-stamp --src-ip 10.9.0.0/24 --src-mac 02:00:00:00:00:01 \
                    --seed 3 --dst-port 53";
        let description = parse(line).unwrap().description().unwrap();
        let expected = Description {
            seed: 3,
            flows: 8,
            lengths: Lengths::Imix,
            families: Families::Both,
            transports: Transports::Tcp,
            answers: true,
            vlans: vec![5, 6],
            vxlan: Some(7),
            fragments: Some(9),
            source_mac: [2, 0, 0, 0, 0, 1],
            sources4: "10.9.0.0/24".parse().unwrap(),
            destination_port: 53,
            stamp: false,
            ..Description::default()
        };
        assert_eq!(description, expected);
        assert_eq!(
            parse("-i x").unwrap().description().unwrap(),
            Description::default()
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in [
            "",
            "-i x --len 60 --imix",
            "-i x --len 1-2-3",
            "-i x --len 70000",
            "-i x --rate fast",
            "-i x --gaps poisson",
            "-i x --speed 1",
            "-i x --replay f --speed 0",
            "-i x --replay f --speed 1 --rate 5",
            "-i x --replay f --tcp",
            "-i x --replay f --dst-port 53",
            "-i x --live --portable",
            "-i x --count 1 --seconds 1",
            "-i x --src-mac 02:00:00:00:00",
            "-i x --src-mac 02:00:00:00:00:0:a",
            "-i x --flows-per-loop",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        let one = parse("-i x -n 3 --ipv4 --ipv6 --udp --tcp").unwrap();
        assert!(one.description().is_err());
    }

    #[test]
    fn a_file_is_replayed_once_unless_told_otherwise() {
        assert_eq!(parse("-i x").unwrap().loops(), 0);
        assert_eq!(parse("-i x --replay f").unwrap().loops(), 1);
        assert_eq!(parse("-i x --replay f --loops 0").unwrap().loops(), 0);
        assert_eq!(parse("-i x --replay f --seconds 2").unwrap().loops(), 0);
    }
}
