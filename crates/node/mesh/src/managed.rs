//! How our own tailscaled is to run.

use std::env;
use std::path::{Path, PathBuf};

use tailscaled::supervisor::TailscaledSpec;

use crate::{TailscaledMode, netns};
use node_config::Config;

/// Where ours listens to us.
pub(crate) fn socket() -> &'static Path {
    Path::new(api::paths::TAILSCALED_SOCKET)
}

/// How it is to run by a configuration, in this way.
pub(crate) fn settings(config: &Config, mode: TailscaledMode) -> TailscaledSpec {
    let tailscale = &config.tailscale;
    let mut settings = TailscaledSpec::new(
        find(
            &tailscale.program,
            env::var_os("PATH").unwrap_or_default().as_ref(),
        ),
        &tailscale.state_dir,
        socket(),
    );
    settings.interface.clone_from(&tailscale.interface);
    settings.port = tailscale.port;
    settings.ca_file.clone_from(&config.headscale.ca_file);
    settings.netns = (mode == TailscaledMode::ManagedNetns).then(|| netns::PATH.into());
    settings
}

/// The whole path of a program: a running one is known by it. One that is nowhere stays as it is, and
/// the error names it.
fn find(program: &Path, path: &std::ffi::OsStr) -> PathBuf {
    if program.is_absolute() {
        return program.to_owned();
    }
    let ours = env::current_exe().ok();
    let ours = ours.as_deref().and_then(Path::parent).map(Path::to_owned);
    let mut dirs = env::split_paths(path).chain(ours);
    let found = dirs.find_map(|dir| {
        let candidate = dir.join(program);
        (dir.is_absolute() && candidate.is_file()).then_some(candidate)
    });
    found.unwrap_or_else(|| program.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_looked_for_in_path() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("tailscaled");
        std::fs::File::create(&program).unwrap();
        let path = env::join_paths(["/nonexistent".as_ref(), dir.path()]).unwrap();
        assert_eq!(find(Path::new("tailscaled"), &path), program);
        assert_eq!(find(Path::new("/x/y"), &path), Path::new("/x/y"));
        assert_eq!(find(Path::new("no-such"), &path), Path::new("no-such"));
    }
}
