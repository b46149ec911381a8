use super::*;
use authority::tests::authority;

#[test]
fn changed_files_are_reloaded_once_they_match() {
    let folder = std::env::temp_dir().join(format!("evenkeel-authority-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).to_string_lossy().into_owned();
    let files = Pair::Files { certificate: path("ca.crt"), key: path("ca.key") };
    let write_certificate = |pair: &Pair| {
        let Pair::Texts { certificate, .. } = pair else { panic!("{pair:?}") };
        std::fs::write(path("ca.crt"), certificate).unwrap();
    };
    let write = |pair: &Pair| {
        write_certificate(pair);
        let Pair::Texts { key, .. } = pair else { panic!("{pair:?}") };
        std::fs::write(path("ca.key"), key).unwrap();
    };
    assert!(matches!(CaProvider::open(&files), Err(AuthorityError::File(..))));
    let (old, new) = (authority(10), authority(20));
    write(&old);
    let authority = CaProvider::open(&files).unwrap();
    let first = authority.current().not_after;
    write_certificate(&new);
    assert_eq!(authority.current().not_after, first);
    write(&new);
    let second = authority.current().not_after;
    assert!(second > first);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(authority.current().not_after, second);
}
