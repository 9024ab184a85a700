//! The package for arm64. The distribution's own cross-compiler builds it, in the root that has
//! built the package for this machine. An emulated machine of arm64 tries it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::{NAME, Release, shown, take};
use crate::bare::{self, Distribution, Root};
use crate::tally::Tally;
use crate::{archive, guest, harness, tree};

/// Installs the cross-compiler, and the libraries on which the package depends. The package of
/// Rust's standard library is unpacked, because it depends on a whole compiler for arm64.
const INSTALL: &str = r#"dpkg --add-architecture arm64 && apt-get update -q \
    && apt-get install -qy --no-install-recommends gcc-aarch64-linux-gnu g++-aarch64-linux-gnu \
        libc6-dev-arm64-cross libc6:arm64 libgcc-s1:arm64 libstdc++6:arm64 \
    && std=$(dpkg-query -Wf '${db:Status-Status} ${Package}\n' 'rustc*' \
        | sed -n 's/^installed rustc/libstd-rust/p' | head -n 1) \
    && mkdir -p /tmp/std && (cd /tmp/std && apt-get download -q $std-dev:arm64 && dpkg -x *.deb /)"#;
/// Tells cargo and debhelper the architecture, and runs this machine's own xtask, which the package
/// for this machine has left.
const CROSS: &str = r#"eval "$(dpkg-architecture -f -aarm64 -s 2>/dev/null)" && FANPCAP_NO_INSTALL=1 \
    CARGO_BUILD_TARGET=aarch64-unknown-linux-gnu \
    CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
    CC=aarch64-linux-gnu-gcc CXX=aarch64-linux-gnu-g++ \
    scripts/setup build target/command/xtask"#;
/// The guest's command, in the directory of the source.
const COMMAND: &str = "target/arm64-command";
/// Packages of the guest's system, besides the essential ones.
const PACKAGES: &str = "--include=ethtool,gcc,g++,iproute2,kmod,libc6-dev,libcap2-bin,\
    libpcap0.8-dev,procps,python3,tcpdump";
/// Commands that packages' scripts would link, and that nothing has run.
const LINKS: [(&str, &str); 3] = [("cc", "gcc"), ("c++", "g++"), ("awk", "mawk")];
/// The name of the source's directory in a root.
const SOURCE: &str = "root/fanpcap";
/// A user installs the package, tcpdump loads the library, and a purge leaves nothing. dpkg has no
/// records of the guest's packages, so it can't know that the dependencies are there.
const PACKAGE: &str = r#"cd /root/fanpcap && exec 2>&1
    list() { find /etc /usr /var/lib/fanpcap -xdev 2>/dev/null | sort; ldconfig -p; }
    ldconfig && list >/tmp/before && dpkg -i --force-depends target/fanpcap/*_arm64.deb \
    && fanpcap enable --system && tcpdump --version && tcpdump --version 2>&1 | grep -q '+ fanpcap ' \
    && fanpcap run --help >/dev/null && dpkg --purge fanpcap \
    && list >/tmp/after && diff /tmp/before /tmp/after"#;

/// Builds the package, and tries it in a guest.
pub(super) fn build(
    root: &Root,
    distribution: &Distribution,
    release: &Release,
    tally: &mut Tally,
) -> Result<()> {
    let name = |what: &str| format!("{}, arm64: {what}", distribution.name);
    if let Err(error) = root.run(INSTALL, &release.log) {
        tally.skip(&name("package"), &format!("no cross-compiler: {error:#}"));
        return Ok(());
    }
    let deb = format!("export {} && {CROSS} deb", release.variables(distribution));
    let built = root.run(&deb, &release.log);
    let built = built.and_then(|()| take(root, NAME, &release.pool(distribution)?));
    let is_built = built.is_ok();
    tally.check(&name("package"), &built.map(shown));
    let Some(series) = guest::series_on_arm64(distribution.suite).filter(|_| is_built) else {
        tally.skip(
            &name("tests"),
            "no package, or no kernel for an emulated machine",
        );
        return Ok(());
    };
    let tests = format!("{CROSS} guest-command {series} {COMMAND}");
    root.run(&tests, &release.log)?;
    let tried = try_in_guest(root, distribution, release);
    *tally += tried.unwrap_or_else(|error| {
        println!("  FAIL  {}: {error:#}", name("guest"));
        Tally::one_failed(&name("guest"))
    });
    Ok(())
}

/// Runs the tests in a guest whose root directory has the source and all that was built.
fn try_in_guest(root: &Root, distribution: &Distribution, release: &Release) -> Result<Tally> {
    let system = system(distribution)?;
    let command = tree::read(&root.source().join(COMMAND))?;
    fs::rename(root.source(), system.join(SOURCE)).context("moving the source")?;
    let ended = [PACKAGE, &command].map(|it| guest::on_arm64(distribution.suite, &system, it));
    tree::remove(&system.join(SOURCE))?;
    let [package, tests] = ended;
    let (package, tests) = (package?, tests?);
    release.note(&package.output)?;
    release.note(&tests.output)?;
    let mut tally = Tally::default();
    let purged = match package.status {
        0 => Ok("in a guest".to_owned()),
        _ => Err(anyhow::anyhow!("{}", package.output)),
    };
    let what = format!("{}, arm64: installed, enabled, purged", distribution.name);
    tally.check(&what, &purged);
    let judged = harness::judge("on arm64", &tests.output, "", tests.status == 0);
    println!("  {}, arm64: tests in a guest: {judged}", distribution.name);
    tally += judged;
    Ok(tally)
}

/// The system of a guest: unpacked packages of arm64, made once and kept. No script of a package
/// has run, because that needs a machine of arm64.
fn system(distribution: &Distribution) -> Result<PathBuf> {
    let base = bare::base(distribution)?;
    let system = base.with_file_name(format!("{}-arm64.base", distribution.name));
    tree::make_once(&system, |half| unpack(distribution, half))?;
    Ok(system)
}

fn unpack(distribution: &Distribution, system: &Path) -> Result<()> {
    bare::debootstrap(
        distribution,
        &["--foreign", "--arch=arm64", PACKAGES],
        system,
    )?;
    archive::unpack(&system.join("var/cache/apt/archives"), system)?;
    for (name, to) in LINKS {
        let link = system.join("usr/bin").join(name);
        if !link.exists() {
            symlink(to, &link).with_context(|| format!("making {}", link.display()))?;
        }
    }
    for name in ["passwd", "group"] {
        let from = system.join(format!("usr/share/base-passwd/{name}.master"));
        fs::copy(&from, system.join("etc").join(name))
            .with_context(|| format!("copying {}", from.display()))?;
    }
    // Tests run programs in the source's directory as other users.
    fs::set_permissions(system.join("root"), Permissions::from_mode(0o755))?;
    let records = system.join("var/lib/dpkg/status");
    fs::write(&records, "").with_context(|| format!("writing {}", records.display()))?;
    ensure!(
        system.join("usr/bin/gcc").exists(),
        "no compiler in the guest's system"
    );
    Ok(())
}
