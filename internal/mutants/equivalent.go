package main

// equivalent are random changes that no test can notice, by key, each with its reason. They are not chosen.
var equivalent = map[string]string{}
