//! Any bytes are an object or an error, in both encodings.
#![no_main]

use evenkeel_api::{Encoding, View, list, status, views, watch};
use libfuzzer_sys::fuzz_target;

fn both<V: View>(data: &[u8]) {
    let _ = V::decode(data, Encoding::Json);
    let _ = V::decode(data, Encoding::Protobuf);
}

fuzz_target!(|data: &[u8]| {
    both::<views::Pod>(data);
    both::<views::Node>(data);
    both::<views::Deployment>(data);
    both::<views::ReplicationController>(data);
    both::<views::Service>(data);
    both::<views::PodDisruptionBudget>(data);
    both::<views::Lease>(data);
    for encoding in [Encoding::Json, Encoding::Protobuf] {
        let _ = list::List::<views::Metadata>::decode(data, encoding);
        let _ = status::Status::decode(data, encoding);
        let _ = watch::Event::read(data, encoding);
    }
});
