//! The processes that run during the whole soak: c/soak.c in each of its roles. Reads their
//! resources.

use anyhow::{Context, Result, bail, ensure};
use fanpcap_testkit::Member;

use crate::stage::{Group, SHARED, Stage};
use crate::vitals::{self, Vitals};

/// The way in which a role's handles are read; `None` is the default.
type Driver = Option<&'static str>;

const DEFAULT: &[Driver] = &[None];
const SOCKETS: &[Driver] = &[None, Some("tpacket")];
const ALL: &[Driver] = &[None, Some("tpacket"), Some("xdp")];
const XDP: &[Driver] = &[Some("xdp")];

/// A role, the group of its handles (`None` for plain handles), and the drivers. On the XDP engine
/// no handle is slow: the least pool has room for all that a slow reader leaves.
const ROLES: [(&str, Option<Group>, &[Driver]); 12] = [
    ("resident", Some(SHARED), DEFAULT),
    ("resident", Some(("51", "flow")), XDP),
    ("resident", None, ALL),
    ("slow", Some(("41", "lb")), DEFAULT),
    ("slow", None, SOCKETS),
    ("filters", Some(("21", "hash")), DEFAULT),
    ("filters", Some(("61", "flow")), XDP),
    ("filters", None, ALL),
    ("breaks", Some(("31", "lb")), DEFAULT),
    ("breaks", None, ALL),
    ("churn", Some(SHARED), DEFAULT),
    ("churn", None, XDP),
];

/// All processes.
pub(crate) struct Cast(Vec<Player>);

struct Player {
    name: String,
    member: Member,
    looks: Vec<Vitals>,
}

impl Cast {
    pub(crate) fn start(stage: &Stage) -> Result<Self> {
        let mut players = Vec::new();
        for (role, group, drivers) in ROLES {
            for &driver in drivers {
                let player = Player::start(stage, role, group, driver);
                players.push(player.with_context(|| role.to_owned())?);
            }
        }
        Ok(Self(players))
    }

    /// Reads the resources of each process. Returns an error if a process has ended or has printed
    /// FAIL.
    pub(crate) fn sample(&mut self) -> Result<()> {
        for player in &mut self.0 {
            let look = Vitals::of(player.member.pid());
            let said = || player.member.said().unwrap_or_default();
            match look {
                Ok(look) if !said().contains("FAIL") => player.looks.push(look),
                Ok(_) | Err(_) => bail!("{}:\n{}", player.name, said()),
            }
        }
        Ok(())
    }

    /// The progress of each process, from its last line of output, and its resources.
    pub(crate) fn tell(&self) -> Result<String> {
        let mut lines = Vec::new();
        for Player {
            name,
            member,
            looks,
        } in &self.0
        {
            let said = member.said()?;
            let progress = said
                .lines()
                .rev()
                .find_map(|line| line.strip_prefix("progress "));
            let held = looks.last().context("a look")?;
            lines.push(format!("{name}: {}; {held}", progress.unwrap_or("-")));
        }
        Ok(lines.join("\n     "))
    }

    /// Asks all processes to end.
    pub(crate) fn interrupt(&self) -> Result<()> {
        self.0.iter().try_for_each(|player| {
            let told = player.member.signal("INT");
            told.with_context(|| player.name.clone())
        })
    }

    /// Waits for the end of all processes, which check their ledgers at their end. Then checks that
    /// no resource of a process has grown.
    pub(crate) fn end(self, tell: &dyn Fn(&str)) -> Result<()> {
        for Player {
            name,
            member,
            looks,
        } in self.0
        {
            let ended = member.wait().with_context(|| name.clone())?;
            let well = ended.status.success() && ended.said.ends_with("finished\n");
            ensure!(well, "{name} ended ({}):\n{}", ended.status, ended.said);
            let is_kept = |line: &&str| line.starts_with("ledger ");
            for line in ended.said.lines().filter(is_kept) {
                tell(&format!("{name}: {line}"));
            }
            tell(&vitals::ensure_flat(&name, &looks)?);
        }
        Ok(())
    }
}

impl Player {
    fn start(
        stage: &Stage,
        role: &str,
        group: Option<Group>,
        driver: Option<&str>,
    ) -> Result<Self> {
        let mut program = stage.program(role, group)?;
        let mut name = role.to_owned();
        if let Some((number, mode)) = group {
            name = format!("{role} in {number} ({mode})");
        }
        if let Some(driver) = driver {
            program = program.set("PCAP_DRIVER", driver);
            name = format!("{name} by {driver}");
        }
        let (member, looks) = (program.start(&stage.scratch)?, Vec::new());
        Ok(Self {
            name,
            member,
            looks,
        })
    }
}
