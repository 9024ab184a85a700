//! Converts values to arguments.

use super::Checker;
use super::value::{Value, Want};
use crate::Error;
use crate::ast::Span;
use crate::error::quote;
use crate::ir::{Filter, Function, Key, Net, Predicate};
use crate::limits::{FILTER_LENGTH_MAX, FILTERS_MAX};
use crate::nearest::nearest;
use crate::table::net::{cut, width};
use crate::table::{self, Argument, Kind, Type};
use fanpcap_bpf::Classic;
use fanpcap_bpf::classic::ancillary::SKF_AD_OFF;
use fanpcap_bpf::classic::opcode::{ABS, CLASS, LD, MODE};
use std::net::{IpAddr, Ipv4Addr};

impl<'a> Checker<'_, 'a> {
    pub(super) fn argument(
        &mut self,
        value: Value<'a>,
        span: &Span,
        want: Want,
    ) -> Result<Argument, Error> {
        Ok(match (want.kind, value) {
            (Kind::Number(least, most), Value::Number(number)) => {
                Argument::Number(self.ranged(number, (least, most), span, want)?)
            }
            (Kind::Numbers(least, most), Value::List(elements)) => {
                Argument::Numbers(self.numbers(elements, (least, most), want)?)
            }
            (Kind::Net, Value::Net(net)) => Argument::Net(net),
            (Kind::Net, Value::Text(text)) => Argument::Net(self.net(&text, span, want)?),
            (Kind::Host, Value::Text(text)) => Argument::Host(self.host(&text, span, want)?),
            (Kind::Hosts, Value::List(elements)) => Argument::Hosts(self.hosts(elements, want)?),
            (Kind::Pair, Value::Tuple(parts)) => Argument::Net(self.pair(parts, span, want)?),
            (Kind::Ethernet, Value::Text(text)) => {
                let address = ethernet(&text);
                let address = address.ok_or_else(|| self.not(&text, span, want))?;
                Argument::Ethernet(address)
            }
            (Kind::Pcap, Value::Text(text)) => Argument::Predicate(self.pcap(&text, span)?),
            (Kind::Predicate, value) => Argument::Predicate(self.predicate(value, span, want)?),
            (Kind::Property, Value::Property(property)) => Argument::Property(property),
            (Kind::Function, value) => Argument::Function(self.function(value, span, want)?),
            (Kind::Key, value) => Argument::Key(self.key(value, span, want)?),
            (_, other) => return Err(self.mismatch(&other, span, want)),
        })
    }

    fn numbers(
        &self,
        elements: Vec<(Value<'a>, Span)>,
        (least, most): (i128, i128),
        want: Want,
    ) -> Result<Vec<i128>, Error> {
        let kind = Kind::Number(least, most);
        let want = Want { kind, ..want };
        let numbers = elements.into_iter().map(|(value, span)| {
            let Value::Number(number) = value else {
                return Err(self.mismatch(&value, &span, want));
            };
            self.ranged(number, (least, most), &span, want)
        });
        numbers.collect()
    }

    fn hosts(&self, elements: Vec<(Value<'a>, Span)>, want: Want) -> Result<Vec<IpAddr>, Error> {
        let kind = Kind::Host;
        let want = Want { kind, ..want };
        let hosts = elements.into_iter().map(|(value, span)| {
            let Value::Text(text) = &value else {
                return Err(self.mismatch(&value, &span, want));
            };
            self.host(text, &span, want)
        });
        hosts.collect()
    }

    pub(super) fn function(
        &mut self,
        value: Value<'a>,
        span: &Span,
        want: Want,
    ) -> Result<Function, Error> {
        let Value::Function(function) = value else {
            return Err(self.mismatch(&value, span, want));
        };
        Ok(function)
    }

    pub(super) fn predicate(
        &mut self,
        value: Value<'a>,
        span: &Span,
        want: Want,
    ) -> Result<Predicate, Error> {
        if let Value::Text(text) = &value {
            return self.pcap(text, span);
        }
        let Value::Predicate(predicate) = value else {
            return Err(self.mismatch(&value, span, want));
        };
        Ok(predicate)
    }

    pub(super) fn key(&mut self, value: Value<'a>, span: &Span, want: Want) -> Result<Key, Error> {
        if let Value::Text(text) = &value {
            return fields(text).map_err(|field| unknown_field(field, span));
        }
        let Value::Key(key) = value else {
            return Err(self.mismatch(&value, span, want));
        };
        Ok(key)
    }

    fn ranged(
        &self,
        number: i128,
        (least, most): (i128, i128),
        span: &Span,
        want: Want,
    ) -> Result<i128, Error> {
        if (least..=most).contains(&number) {
            return Ok(number);
        }
        let message = format!("expected {}, found {number}", want.expected());
        Err(Error::new(span.clone(), message))
    }

    /// The predicate of a pcap expression. Equal expressions are compiled only once.
    fn pcap(&mut self, text: &str, span: &Span) -> Result<Predicate, Error> {
        if let Some(at) = self.filters.iter().position(|filter| filter.text == text) {
            return Ok(Predicate::Pcap(at));
        }
        let error = |message: String| Error::new(span.clone(), message);
        if self.filters.len() == FILTERS_MAX {
            return Err(error(format!(
                "expected at most {FILTERS_MAX} different pcap expressions, found one more"
            )));
        }
        if text.len() > FILTER_LENGTH_MAX {
            let found = text.len();
            return Err(error(format!(
                "expected a pcap expression of at most {FILTER_LENGTH_MAX} bytes, found {found}"
            ))
            .hint("write several shorter expressions and join them by '.||.' or '.&&.'"));
        }
        let wrong = |reason: String| {
            let found = quote(text);
            error(format!(
                "expected a pcap expression, found {found}: {reason}"
            ))
            .hint("see pcap-filter(7)")
        };
        let code = (self.pcap)(text).map_err(wrong)?;
        if code.iter().any(is_ancillary) {
            return Err(error(format!(
                "expected a pcap expression about a packet's bytes, found {}, which reads metadata of the kernel",
                quote(text)
            ))
            .hint("leave out 'inbound', 'outbound' and 'ifindex'"));
        }
        let text = text.to_owned();
        self.filters.push(Filter { text, code });
        Ok(Predicate::Pcap(self.filters.len() - 1))
    }

    /// Parses a net such as `192.168.0.0/16`. An address without a prefix length is a net of one
    /// host.
    fn net(&self, text: &str, span: &Span, want: Want) -> Result<Net, Error> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| self.not(text, span, want))?;
        let most = width(address);
        let Some(bits) = bits else {
            return Ok(cut(address, most));
        };
        let digits = Some(bits).filter(|bits| bits.bytes().all(|byte| byte.is_ascii_digit()));
        let known = digits.and_then(|bits| bits.parse::<u8>().ok());
        let known = known.filter(|bits| *bits <= most);
        known.map(|bits| cut(address, bits)).ok_or_else(|| {
            let message = format!(
                "expected a prefix length from 0 to {most}, found {}",
                quote(bits)
            );
            let meant = mask(bits).filter(|_| address.is_ipv4());
            let hint = meant.map(|meant| format!("write '{address}/{meant}'"));
            Error::new(span.clone(), message).hinted(hint)
        })
    }

    fn host(&self, text: &str, span: &Span, want: Want) -> Result<IpAddr, Error> {
        let error = |_| {
            let error = self.not(text, span, want);
            let has_prefix = text.contains('/');
            let hint = "write the prefix length as a separate argument".to_owned();
            error.hinted(has_prefix.then_some(hint))
        };
        text.parse().map_err(error)
    }

    /// Parses `("192.168.0.0", 16)`.
    fn pair(&self, parts: Vec<(Value<'a>, Span)>, span: &Span, want: Want) -> Result<Net, Error> {
        let [(Value::Text(text), at), (Value::Number(bits), behind)] = parts.as_slice() else {
            return Err(self.mismatch(&Value::Tuple(parts), span, want));
        };
        let address = self.host(
            text,
            at,
            Want {
                kind: Kind::Host,
                ..want
            },
        )?;
        let kind = Kind::Number(0, width(address).into());
        let bits = self.ranged(
            *bits,
            (0, width(address).into()),
            behind,
            Want { kind, ..want },
        )?;
        Ok(cut(address, u8::try_from(bits).unwrap_or(width(address))))
    }

    /// The error for a text that is not an address of the kind that `want` requires.
    fn not(&self, text: &str, span: &Span, want: Want) -> Error {
        let message = format!(
            "expected {} found {}",
            want.expected_before_found(),
            quote(text)
        );
        Error::new(span.clone(), message)
    }
}

/// Whether the instruction loads metadata that the kernel keeps beside the packet (linux/filter.h,
/// SKF_AD_OFF). Such a load has an offset beyond any packet.
fn is_ancillary(instruction: &Classic) -> bool {
    instruction.code & (CLASS | MODE) == LD | ABS && instruction.k >= SKF_AD_OFF
}

/// The prefix length of a netmask: 8 for `255.0.0.0`.
fn mask(text: &str) -> Option<u32> {
    let mask = u32::from(text.parse::<Ipv4Addr>().ok()?);
    (mask.leading_ones() == mask.count_ones()).then_some(mask.count_ones())
}

/// Parses six bytes separated by colons.
fn ethernet(text: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut parts = text.split(':');
    for byte in &mut bytes {
        let part = parts.next().filter(|part| (1..=2).contains(&part.len()))?;
        *byte = u8::from_str_radix(part, 16)
            .ok()
            .filter(|_| !part.starts_with('+'))?;
    }
    parts.next().is_none().then_some(bytes)
}

/// The key of comma-separated field names. If a name is not a field's, returns this name as the
/// error.
fn fields(text: &str) -> Result<Key, &str> {
    text.split(',')
        .map(str::trim)
        .try_fold(Key(0), |key, field| {
            let name = format!("key_{}", field.trim_start_matches("key_"));
            table::key(&name).map(|more| key.and(more)).ok_or(field)
        })
}

fn unknown_field(field: &str, span: &Span) -> Error {
    let names = table::entries().filter(|entry| entry.gives == Type::Key);
    let names = names.filter_map(|entry| entry.name.strip_prefix("key_"));
    let near = nearest(field, names).map(|name| format!("did you mean '{name}'?"));
    let message = format!("expected names of fields, found {}", quote(field));
    let otherwise = "as in \"ip_src,ip_dst,src_port,dst_port\"".to_owned();
    Error::new(span.clone(), message).hint(near.unwrap_or(otherwise))
}
