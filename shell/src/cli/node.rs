//! `thetis coordinator`, `thetis worker`, and `thetis cert`: the processes of a cluster, and who they are.

use std::io::Write;
use std::path::PathBuf;
use std::str::FromStr;

use thetis_cluster::net::identity::{Authority, Identity, IdentityError, Pems, Token};
use thetis_cluster::net::transport::{Peer, Role};
use thetis_cluster::process::{self, CoordinatorSettings, ProcessError, WorkerSettings};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use super::args::{CertCommand, IssueArgs};
use super::exit;
use super::report::say;
use super::settings::{NodeArgs, WorkerOptions};

/// Says what went wrong, down to the first reason; the exit code.
pub(super) fn failed(error: &dyn std::error::Error) -> u8 {
    say(format!("ERROR: {}", thetis_cluster::chain(error)));
    exit::FAILED
}

fn usage(message: &str) -> u8 {
    say(format!("ERROR: {message}"));
    2
}

/// Ready at Ctrl-C or SIGTERM.
async fn told_to_end() {
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

/// Tells those who started the process that it is ready.
fn announce(line: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever started it may not listen.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

/// Runs a coordinator; its exit code.
pub(super) fn coordinator(args: &NodeArgs<CoordinatorSettings>) -> u8 {
    let settings = match args.settings() {
        Ok(settings) => settings,
        Err(message) => return usage(&message),
    };
    let run = || -> Result<(), ProcessError> {
        let ready = |address: &str| announce(&format!("coordinator is ready on {address}"));
        process::runtime()?.block_on(process::coordinate(&settings, told_to_end(), ready))
    };
    run().map_or_else(|error| failed(&error), |()| 0)
}

/// Runs a worker; its exit code.
pub(super) fn worker(args: &NodeArgs<WorkerOptions>) -> u8 {
    let options = match args.settings() {
        Ok(options) => options,
        Err(message) => return usage(&message),
    };
    let run = || -> Result<(), ProcessError> {
        process::runtime()?.block_on(async {
            let identity = identity_of(&options).await?;
            let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
            let settings = WorkerSettings {
                coordinator: options.coordinator.clone(),
                listen: options.listen,
                advertise: options.advertise.clone(),
                identity,
                slots: options.slots.unwrap_or_else(cores),
                drain: options.drain,
            };
            let (leave, told) = watch::channel(false);
            tokio::spawn(async move {
                told_to_end().await;
                leave.send_replace(true);
                // A second one means now.
                told_to_end().await;
                std::process::exit(i32::from(exit::TERMINATED));
            });
            let ready = |name: &str, address: &str| announce(&format!("worker {name} listens on {address}"));
            process::work(&settings, told, ready).await
        })
    };
    run().map_or_else(|error| failed(&error), |()| 0)
}

/// The folder of a worker's identity. A new one joins with its token, or, on the coordinator's machine, takes
/// its identity from the authority itself.
async fn identity_of(options: &WorkerOptions) -> Result<PathBuf, ProcessError> {
    let home = thetis::data_folder();
    let name = options.name.clone().unwrap_or_else(process::new_name);
    let folder = options.data.clone().unwrap_or_else(|| home.join("workers").join(&name));
    if folder.join("cert.pem").exists() {
        return Ok(folder);
    }
    if let Some(token) = &options.token {
        process::join(&options.coordinator, &Token::from_str(token)?, &name, &folder).await?;
        return Ok(folder);
    }
    let no_identity = |error: IdentityError| match error {
        IdentityError::File { path, .. } => ProcessError::NoIdentity(path),
        other => other.into(),
    };
    let authority = Authority::load(&home).map_err(no_identity)?;
    authority.issue(&Peer::new(Role::Worker, &name))?.save(&folder)?;
    Ok(folder)
}

/// Issues certificates and tokens; the exit code.
pub(super) fn cert(command: &CertCommand) -> u8 {
    let done = match command {
        CertCommand::Worker(args) => issue(Role::Worker, args),
        CertCommand::Client(args) => issue(Role::Client, args),
        CertCommand::Token { data } => {
            let data = data.clone().unwrap_or_else(thetis::data_folder);
            Authority::load(&data).and_then(|authority| authority.new_token()).map(|token| token.to_string())
        }
    };
    match done {
        Ok(line) => {
            announce(&line);
            0
        }
        Err(error) => failed(&error),
    }
}

/// Issues an identity; the folder that it is in.
fn issue(role: Role, args: &IssueArgs) -> Result<String, IdentityError> {
    let data = args.data.clone().unwrap_or_else(thetis::data_folder);
    let peer = Peer::new(role, &args.name);
    let pems: Pems = Authority::load(&data)?.issue(&peer)?;
    let own = || data.join("identities").join(format!("{}-{}", role.name(), args.name));
    let folder = args.out.clone().unwrap_or_else(own);
    Identity::of(&pems, &folder)?;
    pems.save(&folder)?;
    Ok(folder.display().to_string())
}
