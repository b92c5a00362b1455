//! Asynchronous RDMA memory registration.
