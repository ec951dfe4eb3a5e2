output "store_prefix" {
  description = "The prefix of the tables' names: `prefix=` of the store's address, and POSTRIDER_PREFIX of functions."
  value       = "${var.name}-"
}

output "bus" {
  value = aws_cloudwatch_event_bus.events.name
}

output "queues" {
  value = { for key, queue in aws_sqs_queue.events : key => queue.url }
}

output "policies" {
  description = "What to attach to the roles of each part."
  value = {
    producer = aws_iam_policy.producer.arn
    relay    = aws_iam_policy.relay.arn
    consumer = { for key, policy in aws_iam_policy.consumer : key => policy.arn }
    operator = aws_iam_policy.operator.arn
  }
}
