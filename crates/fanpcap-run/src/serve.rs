//! `fanpcap serve`: founds a group for applications that are started by themselves.

use std::env;
use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, Error, Result, anyhow, bail};
use clap::Args;
use fanpcap_config::device::ANY;
use fanpcap_config::mode::{Mode, ModeKind};
use fanpcap_external::User;
use fanpcap_group::founder::{FoundError, Founder};
use fanpcap_group::page::GroupDir;
use fanpcap_group::roster::Roster;
use fanpcap_linux::interface;
use fanpcap_linux::process::child::{SIGHUP, SIGINT, SIGTERM};
use fanpcap_linux::process::effective_user;
use fanpcap_linux::wait::events::{self, Signals};
use fanpcap_terminal::streams;

use crate::founding::{self, Looks, attend};
use crate::group;

/// Founds a group for programs without CAP_BPF, such as dumpcap
///
/// The first member of a group loads the group's steering program, such as flow. This takes
/// CAP_BPF. Some programs have given up CAP_BPF when they open the device, for example dumpcap and
/// tshark. This command loads the steering program for such programs, and waits. On the XDP engine
/// it also makes their rings. It captures no packets. 'fanpcap run' does the same for its copies.
///
/// Members join as always, for example by 'group_eth0 = 5' in /etc/pcap.conf. They must be in the
/// network namespace of this command, and run as the same user. Root names another user by --user.
/// 'fanpcap group' shows the group with its founder, also while it has no member.
///
/// The group stays when its last member ends, and its members stay when this command ends. If the
/// device is removed, this command ends with an error: a unit starts it again. A group that has
/// members can't be founded. So on the XDP engine, when this command has ended, programs without
/// CAP_BPF can join the group again only after its members have ended.
#[derive(Args, Debug)]
pub struct Arguments {
    /// The group's number and its device, as in 5@eth0
    #[arg(value_name = "GROUP@DEV", value_parser = place)]
    group: (u16, String),
    /// The user of the members. This command then needs root, and continues as that user, with
    /// CAP_BPF and CAP_NET_RAW
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// The group's steering program: flow, or as in PCAP_FANOUT [default: as the config file says]
    #[arg(long, value_name = "MODE")]
    fanout: Option<String>,
}

fn place(text: &str) -> Result<(u16, String), String> {
    let of = text.split_once('@').and_then(|(group, device)| {
        let group = group.parse().ok()?;
        (!device.is_empty()).then(|| (group, device.to_owned()))
    });
    of.ok_or_else(|| "write the group's number, @ and the device, as in 5@eth0".to_owned())
}

/// Founds the group, and looks after it until a signal comes.
///
/// # Errors
/// The group can't be founded. The message says why and what to do.
pub fn serve(arguments: &Arguments) -> Result<ExitCode> {
    if let Some(name) = &arguments.user {
        let user = User::find(name)?;
        if user.id != effective_user().to_string() {
            return serve_as(&user, arguments);
        }
    }
    events::heed(SIGINT).context("taking signals")?;
    let signals = Signals::take(&[SIGHUP, SIGINT, SIGTERM]).context("taking signals")?;
    let (group, device) = &arguments.group;
    let founder = found(*group, device, arguments.fanout.as_deref())?;
    streams::note(&format!(
        "fanpcap: group {group} on {device} waits for members\n"
    ));
    let mut looks = Looks::default();
    let tell = |text: &str| streams::note(&format!("fanpcap: {text}\n"));
    loop {
        let [is_signalled] = attend(&founder, &[signals.as_fd()], &mut looks, &tell)[..] else {
            continue;
        };
        if is_signalled {
            return Ok(ExitCode::SUCCESS);
        }
        if interface::name(founder.ifindex()).is_none() {
            bail!("{device} is gone: start this command again when the device is back");
        }
        if founder.is_replaced() {
            bail!(
                "group {group} on {device} has another mode or engine than this command founded it with: give both the same"
            );
        }
        settle(&founder);
    }
}

/// The capabilities of a founder that does not run as root.
const CAPABILITIES: &str = "+bpf,+net_raw";

/// Gives the directory of the group's pages to a user, and continues as that user.
fn serve_as(user: &User, arguments: &Arguments) -> Result<ExitCode> {
    let (group, device) = &arguments.group;
    if let Some(engine) = founding::asked_engine(*group, Some(device), arguments.fanout.as_deref())
    {
        bail!(
            "--user: groups on engine {engine} are served for root's members only: without 'driver = \
             {engine}' members use packet sockets"
        );
    }
    let ids = (user.id.parse()?, user.group.parse()?);
    let ifindex = interface::index(device).with_context(|| interface::missing(device))?;
    let given = GroupDir::of(ifindex, *group).and_then(|directory| directory.give(ids));
    let served = given.with_context(|| {
        let name = arguments.user.as_deref().unwrap_or_default();
        format!("--user {name}: this needs root, and group {group} on {device} without members or founder")
    })?;
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", &user.id, "--regid", &user.group, "--init-groups"])
        .args(["--inh-caps", CAPABILITIES, "--ambient-caps", CAPABILITIES])
        .arg("--")
        .arg(env::current_exe().context("this program's file")?)
        .args(["serve", &format!("{group}@{device}")])
        .env("HOME", &user.home)
        // Standard input keeps the directory given away as long as the command runs.
        .stdin(served);
    if let Some(fanout) = &arguments.fanout {
        command.args(["--fanout", fanout]);
    }
    Err(Error::new(command.exec()).context("running setpriv"))
}

fn found(group: u16, device: &str, fanout: Option<&str>) -> Result<Founder> {
    let ifindex = interface::index(device).filter(|_| device != ANY);
    let ifindex = ifindex.with_context(|| interface::missing(device))?;
    fanout
        .map(|text| group::parse_mode(text, false))
        .transpose()?;
    let explained = founding::explained(group, device, fanout);
    let plan = explained.context("the settings have errors: 'fanpcap config' shows them")?;
    let plan = plan.plan.map_err(|error| anyhow!("{error}"))?;
    if let Some(polled) = &plan.polled {
        let engine = polled.engine;
        match engine.has_poller() {
            true => bail!("groups on engine {engine} need no founder: their poller keeps them"),
            false => bail!("groups on engine {engine} need no founder"),
        }
    }
    let choice = plan.choice.as_ref();
    let choice = choice.context("the settings give the device no group")?;
    if choice.steering.is_none() {
        let mode = choice.shown_mode();
        bail!("mode {mode} needs no founder: members may start the group without CAP_BPF");
    }
    ensure_startable(group, ifindex)?;
    let founded = founding::found(group, device, &plan).map_err(|error| match error {
        FoundError::System { error, .. } if error.kind() == ErrorKind::PermissionDenied => {
            anyhow!("founding a group needs CAP_NET_RAW and CAP_BPF: run as root, or let root run this command with --user")
        }
        FoundError::Join(_) | FoundError::NoPages | FoundError::System { .. } => error.into(),
    })?;
    founded.with_context(|| {
        format!(
            "group {group} on {device} has members or a founder already: newcomers join it as it is; \
             to serve it, end them first, or serve another number"
        )
    })
}

/// Refuses a group that members have on another device, or in a mode of the kernel's own: members
/// of the founder's group could not join it.
fn ensure_startable(group: u16, ifindex: u32) -> Result<()> {
    let roster = Roster::look().context("listing packet sockets")?;
    let Some(member) = roster.members(group).next() else {
        return Ok(());
    };
    let has = interface::name(member.ifindex).unwrap_or_else(|| ANY.to_owned());
    if member.ifindex != ifindex {
        bail!("group {group} is on device {has}: serve {group}@{has}, or another number here");
    }
    let mode = member.fanout.and_then(|it| Mode::from_kernel(it.mode, 0));
    match mode.filter(|mode| mode.kind != ModeKind::Program) {
        Some(mode) => bail!(
            "group {group} on {has} has members in mode {mode}, which needs no founder: serve another number, or end the members"
        ),
        None => Ok(()),
    }
}

/// Settles the members that are gone if no member is left to do it.
fn settle(founder: &Founder) {
    if !founder.has_gone_members() {
        return;
    }
    // What fails here is tried again after a while.
    if let Ok(Some(memberless)) = founder.lock_memberless(true) {
        let _ = memberless.settle();
    }
}
