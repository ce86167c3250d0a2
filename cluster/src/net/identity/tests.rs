use super::*;

#[test]
fn an_identity_says_who_it_is_and_names_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::open(folder.path()).unwrap();
    let peer = Peer::new(Role::Worker, "w-1");
    let (identity, place) = authority.identity(&peer).unwrap();
    assert_eq!(identity.peer, peer);
    assert_eq!(Identity::load(&place).unwrap().peer, peer);
    // Asked again, it is the same one.
    assert_eq!(authority.identity(&peer).unwrap().0.chain, identity.chain);
    for name in ["", "A", "a.b", "-a", "a-", "a b", "ä", &"a".repeat(41)] {
        assert!(matches!(authority.issue(&Peer::new(Role::Client, name)), Err(IdentityError::Name(_))), "{name}");
    }
}

#[test]
fn keys_are_for_their_owner_only() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let authority = Authority::open(&data).unwrap();
    let (_, place) = authority.identity(&Peer::coordinator()).unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!([mode(&data.join("ca.key")), mode(&place.join("key.pem")), mode(&data)], [0o600, 0o600, 0o700]);
    assert!(!format!("{:?}", authority.new_token().unwrap()).contains(&authority.new_token().unwrap().secret));
}

#[test]
fn a_token_is_used_once() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::open(folder.path()).unwrap();
    let token = authority.new_token().unwrap();
    let read: Token = token.to_string().parse().unwrap();
    assert_eq!((&read.secret, &read.authority), (&token.secret, &token.authority));
    assert!(authority.use_token(&read.secret));
    assert!(!authority.use_token(&read.secret));
    assert!(!authority.use_token("../ca"));
    assert!("thetis-12-34".parse::<Token>().is_err());
}

#[test]
fn a_request_gets_the_role_of_a_worker_whatever_it_asks_for() {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::open(folder.path()).unwrap();
    let request = Request::new().unwrap();
    let peer = Peer::new(Role::Worker, "new");
    let certificate = authority.sign(&peer, &request.pem().unwrap()).unwrap();
    let pems = request.granted(certificate, authority.certificate().to_owned());
    assert_eq!(Identity::of(&pems, folder.path()).unwrap().peer, peer);
    assert!(authority.sign(&peer, "no request").is_err());
}
